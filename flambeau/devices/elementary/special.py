"""The error function and its kin, gamma's logarithm and derivatives, Bessel's I0 and I1."""

from __future__ import annotations

from ...core import expr
from ...core.expr import Expr, where
from .circular import reduced_cosine, reduced_sine
from .exponential import exp, log, log1p
from .floats import (
    INF,
    NAN,
    absolute,
    clamp,
    copysign,
    fma,
    in_double,
    layout,
    nearest,
    polynomial,
    root,
    two_product,
)

# -- the error function ------------------------------------------------------------------------

# erf(x) / x - 1 in x**2 for |x| < 1.35, and erf(x) in x - 2.67 from there to 3.95, where it is 1
ERF_CENTRE_32 = (-6.78121887e-06, 9.95291266e-05, -0.000824322517, 0.00519859651, -0.0268544741,
                 0.112835228, -0.37612614, 0.128379151)
ERF_SIDE_32 = (-7.07457957e-06, 2.77644062e-06, 7.36023867e-05, -0.000151251894, -2.73373535e-05,
               0.000712237612, -0.00202704384, 0.003626497, -0.00453275815, 0.00400008168,
               -0.00241487031, 0.000904344546, 0.999840617)
# erf(x) / x - 1 in x**2 for |x| < 0.75
ERF_CENTRE_64 = (
    -9.502840894774706e-10, 1.4413879289095029e-08, -1.63332293434337e-07, 1.646038320985815e-06,
    -1.4925589383821143e-05, 0.00012055331545294116, -0.0008548327001135946,
    0.005223977625222192, -0.026866170645118446, 0.11283791670955087, -0.37612638903183754,
    0.1283791670955126)
# (1 + 2 x) exp(x**2) erfc(x) for all x >= 0, in (x - 4) / (x + 4)
ERFCX = (
    4.335744696880128e-11, -1.37212432109558e-10, -5.47796315403793e-10, 1.7887492189077536e-09,
    3.979908209935334e-09, -1.470518755238763e-08, -2.1917128684776733e-08,
    1.1009041560728304e-07, 7.89343963476142e-08, -8.249127434964572e-07, 2.909062968371427e-07,
    5.709201212226352e-06, -1.1220753452725425e-05, -2.4398942309069806e-05,
    0.00015062130746391778, -0.0001992567764579197, -0.0007577732195352293,
    0.005031969992810925, -0.01619773406595253, 0.03716751553591141, -0.0663303658116485,
    0.09373283499843951, -0.10103906603632504, 0.06809705425469036, 0.015379652102620042,
    -0.1396211168405625, 1.2329951186255526)


def erf_single(x: Expr) -> Expr:
    """One polynomial near 0 and another up to where it is 1: cheaper than any exponential."""
    a = absolute(x)
    side = clamp(polynomial(clamp(a, high=3.95) - 2.67, ERF_SIDE_32), high=1.0)
    return where(a < 1.35, fma(x, polynomial(x * x, ERF_CENTRE_32), x), copysign(side, x))


# (the share of a normal distribution below x, less a half) / x in x**2, over a polynomial of x**2,
# to 7e-9 for |x| < 5.5
BELOW_TOP_32 = (2.27493445e-08, 6.35213098e-06, 0.000168826903, 0.00467726813, 0.0338527621,
                0.398942235)
BELOW_BOTTOM_32 = (1.1975043e-06, 7.36479216e-05, 0.00188445174, 0.0286459388, 0.251522209, 1.0)


def below_single(x: Expr) -> Expr:
    """One quotient for all that is not 0 or 1: two thirds of what erf takes."""
    square = x * x
    inside = fma(x, polynomial(square, BELOW_TOP_32) / polynomial(square, BELOW_BOTTOM_32), 0.5)
    outside = where(x > 0, expr.const(1, x.dtype), 0.0)
    return where(absolute(x) < 5.5, inside, outside)


def below_double(x: Expr) -> Expr:
    return 0.5 * (1 + erf_double(x * 0.5**0.5))


def _erfcx_right(x: Expr) -> Expr:
    """exp(x**2) erfc(x) for x >= 0: a half line mapped to [-1, 1], then one polynomial."""
    t = where(x == INF, 1.0, (x - 4) / (x + 4))
    return polynomial(t, ERFCX) / fma(x, 2.0, 1.0)


def _exp_of_square(x: Expr, sign: int) -> Expr:
    """exp(sign x**2), with what the square's rounding lost."""
    square, low = two_product(x, x)
    e = exp(sign * square)
    return where((e < INF) & (e > 0), fma(e * sign, low, e), e)


def _erfc_right(x: Expr) -> Expr:
    x = clamp(x, high=28.0)
    return _exp_of_square(x, -1) * _erfcx_right(x)


def erf_double(x: Expr) -> Expr:
    """A polynomial near 0, else 1 - erfc(|x|)."""
    a = absolute(x)
    centre = fma(x, polynomial(x * x, ERF_CENTRE_64), x)
    return where(a < 0.75, centre, copysign(1 - _erfc_right(a), x))


def erfc(x: Expr) -> Expr:
    """1 - erf(x) in the middle, exp(-x**2) erfcx(x) on the right, 2 less that on the left."""
    right = _erfc_right(absolute(x))
    centre = 1 - fma(x, polynomial(x * x, ERF_CENTRE_64), x)
    return where(absolute(x) < 0.4, centre, where(x < 0, 2 - right, right))


def erfcx(x: Expr) -> Expr:
    """exp(x**2) erfc(x); on the left 2 exp(x**2) less its mirror image."""
    a = absolute(x)
    right = _erfcx_right(a)
    return where(x < 0, 2 * _exp_of_square(clamp(a, high=30.0), 1) - right, right)


def log_ndtr(x: Expr) -> Expr:
    """log of the normal distribution function, without ever taking the log of a tiny number

    The smaller tail is exp(-x**2 / 2) c with c = erfcx(|x| / sqrt(2)) / 2.
    """
    c = 0.5 * _erfcx_right(absolute(x) * 0.7071067811865476)
    square, low = two_product(x, x)
    e = exp(-0.5 * square)
    tail = c * where(e > 0, fma(e * -0.5, low, e), e)
    return where(x < 0, log(c) - 0.5 * square, log1p(-tail))


# erfinv(x) / x with w = -log(1 - x**2): in w below 6, then in sqrt(w) - 3.25 and sqrt(w) - 5
ERFINV_CENTRE = (
    4.3365108728076584e-21, -3.0942782940779803e-19, 1.0156386741696147e-17,
    -2.0186971880561725e-16, 2.685111631670367e-15, -2.4850287537694795e-14,
    1.606421819398225e-13, -7.111391028933292e-13, 2.1778476575955176e-12,
    -6.370377880856235e-12, 2.6498130649496732e-11, -3.923852121773567e-11,
    -4.967752765037201e-10, 7.322152602078894e-10, 2.2801749621975007e-08,
    -3.728954276217352e-08, -1.0125657206335586e-06, 2.019997709161557e-06,
    4.661143629529549e-05, -0.00012804329309305053, -0.0023351016418032013,
    0.011549342038287095, 0.23201366653465397, 0.886226925452758)
ERFINV_SIDE = (
    8.105719483108593e-09, -1.5298900459347947e-08, -2.212112637392289e-08,
    1.3157143844112953e-07, -2.440431560853105e-07, -2.76027698245673e-08,
    1.4806256802607642e-06, -3.9857129436913956e-06, 2.932971225915217e-06,
    1.2465030023815492e-05, -4.7320778963563135e-05, 6.828711718286499e-05,
    2.403152785531516e-05, -0.00035503781378545487, 0.0009532893402653189,
    -0.001688275535446669, 0.00249144209801552, -0.003751208508224882, 0.0053709145535540195,
    1.0052589676941655, 3.0838856104922208)
ERFINV_TAIL = (
    -1.968931701962242e-11, 4.2883063927487056e-11, 6.646144734325842e-11,
    -4.3752073162016196e-10, 1.3217356090705066e-09, -3.471592786518304e-09,
    7.815701028842222e-09, -1.525464535688987e-08, 2.9021987809100164e-08,
    -6.755650411430056e-08, 2.290516780486715e-07, -9.9302927406069e-07, 4.526052743790951e-06,
    -1.9681770719043677e-05, 7.599527807604776e-05, -0.00021503011982656274,
    -0.0001387193183793902, 1.0103004648645453, 4.849906401408584)


def _erfinv_over_x(w: Expr) -> Expr:
    """erfinv(x) / x from w = -log(1 - x**2)"""
    s = root(w)
    outer = where(w < 16, polynomial(s - 3.25, ERFINV_SIDE), polynomial(s - 5, ERFINV_TAIL))
    return where(w < 6, polynomial(w, ERFINV_CENTRE), outer)


def erfinv(x: Expr) -> Expr:
    """x times polynomials in w = -log(1 - x**2), in which the ends of the interval are tame"""
    inside = x * _erfinv_over_x(-log(fma(-x, x, 1.0)))
    return where(absolute(x) == 1, x * INF, inside)


def ndtri(p: Expr) -> Expr:
    """sqrt(2) erfinv(2 p - 1), whose 1 - x**2 is 4 p (1 - p): exact where p is tiny.

    Past w = 36 the polynomials end, and Newton steps on the tail's logarithm go on.
    """
    x, w = 2 * p - 1, -log(4 * p * (1 - p))
    near = 1.4142135623730951 * x * _erfinv_over_x(clamp(w, None, 36.0))
    far = root(2 * w)
    for _ in range(4):
        # log ndtr(-t) = log(erfcx(t / sqrt 2) / 2) - t**2 / 2, and its slope is -1 / mills(t)
        scaled = _erfcx_right(far * 0.7071067811865476)
        error = log(0.5 * scaled) - 0.5 * far * far - log(p)
        far = far + error * scaled * 1.2533141373155003
    value = where(w > 36, -far, near)
    value = where(p == 0, expr.const(-INF, p.dtype), where(p == 1, expr.const(INF, p.dtype), value))
    return where((p < 0) | (p > 1), expr.const(float("nan"), p.dtype), value)


# -- gamma -------------------------------------------------------------------------------------

# For y >= 4, in 1 / y**2: y (lgamma(y) - Stirling's formula)
STIRLING = (
    0.03686739028826235, -0.01852984212076282, 0.0058428301946621825, -0.0018988790761145635,
    0.0008413741438325448, -0.0005952337085904952, 0.0007936507676291844,
    -0.0027777777777176055, 0.08333333333333331)
# y**2 (log(y) - 1 / (2 y) - digamma(y))
DIGAMMA_FAR = (
    16.272491774879793, -7.874672346393533, 2.000475819149335, -0.3992958041890863,
    0.08204835144415515, -0.02106749034008772, 0.007575437694406402, -0.004166664261694581,
    0.003968253958849532, -0.008333333333318827, 0.08333333333333333)
# y**3 (trigamma(y) - 1 / y - 1 / (2 y**2))
TRIGAMMA_FAR = (
    15962.434107304229, -8075.901405820509, 1996.0072143942334, -338.09392545252246,
    48.138845718582346, -6.909497111643802, 1.1631511243812236, -0.25306674097826604,
    0.07575716689379278, -0.033333331174490256, 0.023809523803528375, -0.03333333333332672,
    0.16666666666666666)
# digamma(y) / (y - its root) for 1 <= y <= 2, a ratio
DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
DIGAMMA_TOP = (
    6.939711532726053e-06, 0.0036599487869709707, 0.10876372653985336, 0.9060880037438469,
    2.778388571524743, 3.1677862496298257, 1.0)
DIGAMMA_BOTTOM = (
    0.0007671267661816893, 0.03425934190861045, 0.3976079448222274, 1.6890884210159602,
    2.7864628930463335, 1.4616318778688873, 2.1265410614328824e-08)
PI, PI_LOW = 3.141592653589793, 1.2246467991473532e-16


def _sin_cos_pi(x: Expr) -> tuple[Expr, Expr]:
    """sin(pi x) and cos(pi x) up to a common sign, exactly 0 where they should be."""
    n, _ = nearest(2 * clamp(x, -2.0**49, 2.0**49) + layout(x).whole)
    r, low = two_product(fma(n, -0.5, x), expr.const(PI, x.dtype))
    low = fma(fma(n, -0.5, x), PI_LOW, low)
    half = expr.call("floor", n * 0.5) * 2 != n
    s, c = reduced_sine(r, low), reduced_cosine(r, low)
    return where(half, c, s), where(half, -s, c)


@in_double
def lgamma(x: Expr) -> Expr:
    """log|gamma|: Stirling's formula, four steps of the recurrence below 4, reflection below 0"""
    a = absolute(x)
    low = a < 4
    y = where(low, a + 4, a)
    tail = polynomial(1 / (y * y), STIRLING) / y
    right = fma(y - 0.5, log(y) - 1, 0.4189385332046727 + tail)
    right = right - where(low, log(a * (a + 1) * (a + 2) * (a + 3)), 0.0)
    s, _ = _sin_cos_pi(x)
    left = log(PI / absolute(a * s)) - right
    # Its zeros on the right, where the recurrence leaves a rounding error.
    right = where((x == 1) | (x == 2), 0.0, right)
    inside = where(x < 0, left, right)
    return where((a == INF) | (x == 0) | ((x < 0) & (expr.call("floor", x) == x)), INF, inside)


def _digamma_right(y: Expr) -> Expr:
    """y > 0: steps into [1, 2), where its root is factored out; an asymptotic form from 4."""
    b = where(y < 1, y + 1, where(y < 2, y, where(y < 3, y - 1, y - 2)))
    near = (b - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1]
    near = near * (polynomial(b, DIGAMMA_TOP) / polynomial(b, DIGAMMA_BOTTOM))
    near = near + where(y < 1, -1 / y, where(y < 2, 0.0, 1 / (y - 1)))
    near = near + where(y < 3, 0.0, 1 / (y - 2))
    inverse = 1 / y
    z = inverse * inverse
    far = log(y) - fma(z, polynomial(z, DIGAMMA_FAR), 0.5 * inverse)
    return where(y < 4, near, far)


def digamma(x: Expr) -> Expr:
    """gamma'/gamma; on the left digamma(-x) - 1/x - pi cot(pi x), NaN at the poles below 0"""
    s, c = _sin_cos_pi(x)
    right = _digamma_right(absolute(x))
    left = right - 1 / x - PI * c / s
    left = where(expr.call("floor", x) == x, NAN, left)
    return where(x == 0, -copysign(expr.const(INF, x.dtype), x), where(x < 0, left, right))


def trigamma(x: Expr) -> Expr:
    """digamma's derivative; four steps of the recurrence below 4, reflection below 0"""
    a = absolute(x)
    low = a < 4
    inverse = 1 / where(low, a + 4, a)
    z = inverse * inverse
    far = fma(z, fma(inverse, polynomial(z, TRIGAMMA_FAR), 0.5), inverse)
    first = 1 / (a * a)
    # trigamma(1 + a): what is left when the pole at 0 is taken out
    regular = where(low, far + _inverse_square(a + 3) + _inverse_square(a + 2)
                    + _inverse_square(a + 1), far - first)
    s, _ = _sin_cos_pi(x)
    turn = PI / s
    left = where(expr.call("floor", x) == x, INF, fma(turn, turn, -regular))
    return where(x < 0, left, where(low, regular + first, far))


def _inverse_square(x: Expr) -> Expr:
    return 1 / (x * x)


# -- modified Bessel functions -----------------------------------------------------------------

# I0(x) and 2 I1(x) / x for |x| <= 8, in x**2 / 4
BESSEL_NEAR = {
    0: (3.7083673331713694e-32, 6.956135192472546e-30, 2.3261942698780893e-27,
        5.835463138191533e-25, 1.3160459459294984e-22, 2.5788866322197336e-20,
        4.358394920164562e-18, 6.276080874261755e-16, 7.594058461629167e-14,
        7.594058426302191e-12, 6.151187326857943e-10, 3.936759889138518e-08,
        1.9290123456790645e-06, 6.944444444444436e-05, 0.0017361111111111112,
        0.027777777777777776, 0.25, 1.0, 1.0),
    1: (1.9118983075493824e-33, 3.9234286739835217e-31, 1.3643516140827972e-28,
        3.6488164542916493e-26, 8.773175227132446e-24, 1.842071281318797e-21,
        3.3526100623327697e-19, 5.2300675562988503e-17, 6.903689496580404e-15,
        7.594058427230109e-13, 6.834652585350997e-11, 4.92094986142491e-09,
        2.755731922398615e-07, 1.157407407407407e-05, 0.00034722222222222224,
        0.006944444444444444, 0.08333333333333333, 0.5, 1.0),
}
# sqrt(x) exp(-x) times I0(x) or I1(x) for x >= 8, in 16 / x - 1
BESSEL_FAR = {
    0: (-7.06893851181878e-11, -1.9216763724933513e-11, 5.181936971288284e-10,
        1.4672236659214398e-10, -1.7789375042917173e-09, -5.562201990080394e-10,
        3.881151253996067e-09, 1.497880830187091e-09, -6.188265090497361e-09,
        -3.4857887470034955e-09, 7.58022133915272e-09, 7.540601378890834e-09,
        -5.4685974495866e-09, -1.3404241991980871e-08, -6.729724111923548e-09,
        7.553516470355896e-09, 2.1545177650836005e-08, 3.932602459703109e-08,
        8.87225351128584e-08, 2.973598432479169e-07, 1.4838475473607391e-06,
        1.1143033791556743e-05, 0.00013621607439232746, 0.003360551983667854,
        0.4021765094450081),
    1: (7.347992441734663e-11, 1.7502497778701306e-11, -5.388285995923524e-10,
        -1.342266320082222e-10, 1.8513716745511988e-09, 5.146498826087142e-10,
        -4.047785403711858e-09, -1.4171698018664596e-09, 6.4870195719816896e-09,
        3.406636130196794e-09, -8.044231276166508e-09, -7.630751970065577e-09,
        6.040877342160988e-09, 1.4029693589852716e-08, 6.715795128085017e-09,
        -8.426622829598154e-09, -2.337059627111857e-08, -4.312935369971356e-08,
        -1.0001323461066435e-07, -3.483855609009937e-07, -1.8349101134666435e-06,
        -1.5038547201176271e-05, -0.00021923576383430274, -0.009749577193235728,
        0.38939845902587233),
}
EXP_8 = 2980.9579870417283


def _bessel(x: Expr, order: int, scaled: bool) -> Expr:
    """A power series up to 8, an asymptotic form beyond; scaled means times exp(-|x|)."""
    a = absolute(x)
    half = clamp(a, high=8.0) * 0.5
    near = polynomial(half * half, BESSEL_NEAR[order])
    near = near * exp(-a) if scaled else near
    near = near * (x * 0.5) if order else near
    far = polynomial(16 / clamp(a, low=8.0) - 1, BESSEL_FAR[order])
    if scaled:
        far = far / root(a)
    else:
        # The result overflows after exp(x) and before exp(x - 8); the clamp avoids inf / inf.
        far = far / root(clamp(a, high=1e4)) * exp(a - 8) * EXP_8
    return where(a <= 8, near, copysign(far, x) if order else far)


def i0(x: Expr) -> Expr:
    return _bessel(x, 0, False)


def i0e(x: Expr) -> Expr:
    return _bessel(x, 0, True)


def i1(x: Expr) -> Expr:
    return _bessel(x, 1, False)


def i1e(x: Expr) -> Expr:
    return _bessel(x, 1, True)
