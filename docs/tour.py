"""The tour: one hour through the engine, from a line of Python to machine code and back.

Run it (`python docs/tour.py`) and read the output beside this file, or run it chapter by chapter:
`python docs/tour.py 3`. Everything printed is asked of the library while it runs; nothing is
prepared. The last chapter adds an op to the library, which is what the rest leads to.
"""

import sys
import textwrap

import flambeau as torch
from flambeau import assemble
from flambeau.core import dtype, expr
from flambeau.devices import reference
from flambeau.devices.cpu.bridge import jit
from flambeau.devices.cpu.compile import KERNELS
from flambeau.devices.llvm import to_ir
from flambeau.ops.declare import FLOAT, pointwise, registry


def show(title, value):
    """Print something under a title."""
    print(f"\n--- {title}\n{textwrap.indent(str(value), '    ')}")


def kernels_made_by(action):
    """The kernels that are compiled (or taken from disk) while something runs."""
    before = set(KERNELS)
    action()
    return [KERNELS[function] for function in KERNELS if function not in before]


def chapter_1_an_op_is_a_function_on_one_element():
    """An op is declared once, as a Python function of one element.

    Among the declarations in flambeau/ops there is

        @pointwise(FLOAT)
        def sigmoid(x):
            '''1 / (1 + exp(-x))'''
            return 1 / (1 + exp(-x))

    The declaration lands in a registry: a dictionary from names to ops. There are six kinds of op
    (pointwise, reduction, view, indexed, library, composite); the engine knows kinds, never names.
    """
    show("an op, as the registry has it", registry["sigmoid"])
    counts = {}
    for op in registry.values():
        counts[op.kind] = counts.get(op.kind, 0) + 1
    show("how many ops of each kind", counts)

    # The body is called with symbols instead of numbers, and what it does is recorded.
    x = expr.input(1, dtype.float32)
    body = registry["sigmoid"].element([x], {})
    show("the body of sigmoid, called with a symbol", body)

    # An expr is a small tree. It is interned: the same tree is the same object.
    assert registry["sigmoid"].element([x], {}) is body
    show("its leaves and its root", f"{body.head} of {[str(each) for each in body.args]}")


def chapter_2_a_gradient_is_another_expr():
    """The derivative of an expr is an expr: nobody wrote it.

    Inside a body derivatives are taken forward: each node says how it moves when its arguments do.
    """
    x = expr.input(1, dtype.float32)
    wave = x * x + registry["sin"](x)  # on a symbol, an op becomes a node of the expr
    show("f(x)", wave)
    show("f'(x)", expr.tangent(wave, {x: expr.const(1, dtype.float32)}))

    # Where a shorter or stabler formula is known, it stands beside the op and is used instead.
    # It names what it wants: sigmoid's gradient wants the output, so only the output is kept.
    g, out = expr.input(2, dtype.float32), expr.input(3, dtype.float32)
    show("sigmoid's own gradient: x2 is what comes back, x3 what went out",
         registry["sigmoid"].pull(0, g, [x], out, {}))
    show("what it keeps for backward", registry["sigmoid"].wanted)


def chapter_3_a_kernel_is_loops_around_exprs():
    """The first call on a new kind of operand makes a kernel: loops, loads, stores, an expr.

    Sizes are no part of it. `float32[1]` says: 32-bit floats, neighbours in memory. So one kernel
    serves every contiguous shape, and a transposed or broadcast operand makes another.
    """
    values = torch.linspace(-3, 3, 7, dtype=torch.float64)
    (kernel,) = kernels_made_by(lambda: torch.sigmoid(values))
    show("the kernel of sigmoid on 64-bit floats", kernel)
    block = torch.ones(2, 3, 4, dtype=torch.float64)
    show("kernels made for another shape", len(kernels_made_by(lambda: torch.sigmoid(block))))
    (strided,) = kernels_made_by(lambda: torch.sigmoid(values[::2]))
    show("every second element: another layout", str(strided).splitlines()[0])

    # Numbers from numpy, through the same exprs: the specification that machine code is tested by.
    element = registry["sigmoid"].element([expr.input(0, dtype.float64)], {})
    difference = reference.evaluate(element, [values.numpy()]) - torch.sigmoid(values).numpy()
    show("machine code against numpy, largest difference", abs(difference).max())
    return kernel


def chapter_4_from_a_kernel_to_machine_code():
    """A kernel is written as LLVM's intermediate language, with vectors as wide as the machine's.

    LLVM (through llvmlite, a wheel) makes machine code of it in this process: no compiler is
    installed, nothing is linked. The code goes to ~/.cache/flambeau and is loaded from there
    next time, in under a millisecond.
    """
    values = torch.arange(64.0)
    found = kernels_made_by(lambda: torch.lerp(values, values, 0.25))
    text = to_ir(found[-1], "tour", jit().bits)
    show(f"a kernel: lerp, on {jit().bits}-bit vectors", found[-1])
    body = [line for line in text.splitlines()
            if any(word in line for word in ("fmul", "fadd", "fsub"))]
    show(f"the arithmetic among its {len(text.splitlines())} lines of LLVM IR", "\n".join(body[:6]))
    assembly = jit().machine.emit_assembly(jit().llvm.parse_assembly(text))
    arithmetic = [line.strip() for line in assembly.splitlines()
                  if line.strip().startswith(("vadd", "vsub", "vmul", "vfma", "fadd", "fmla"))]
    show("and in its machine code", "\n".join(arithmetic[:6]) or "(another processor's words)")


def chapter_5_backward_walks_a_graph():
    """Ops on tensors that require gradients leave nodes behind; backward walks them in reverse.

    A node holds the plan of its op (what code runs, and how to go back), its parents, and the
    tensors that the gradient named. The gradient of a pointwise op is a pointwise op: one more
    kernel, made like any other.
    """
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = torch.sigmoid(x)
    loss = (y * y).sum()
    node, names = loss.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    show("the graph, from the loss back to x", " <- ".join(names))
    made = kernels_made_by(lambda: loss.backward())
    show("a kernel that backward needed", made[-1] if made else "(all were known)")
    by_hand = 2 * y * y * (1 - y)
    show("the gradient, and the one by hand", f"{x.grad}\n{by_hand.detach()}")

    # Derivatives are made of ops, so they can be differentiated again, any number of times.
    point = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    derivative = torch.sin(point)
    for order in range(1, 5):
        (derivative,) = torch.autograd.grad(derivative, point, create_graph=True)
        print(f"    derivative {order} of sin at 0.5: {derivative.item():+.6f}")


def chapter_6_one_kernel_for_many_ops():
    """A composite op is written with other ops, and still runs as one kernel.

    softmax is exp(x - max) / sum(exp(x - max)): two folds and two maps over each row. Below, the
    four stages stand in one kernel, which goes over a row while it is in the cache.
    """
    rows = torch.randn(4, 6, dtype=torch.float64)
    made = kernels_made_by(lambda: torch.softmax(rows, dim=-1))
    show("softmax", made[-1])


def chapter_7_compile():
    """torch.compile makes such kernels of one's own functions.

    It runs the real Python once and records the op calls; the next time the same path is taken,
    a program runs instead. A value that Python needs (an `if`, an `.item()`) ends a segment;
    branches, prints and side effects keep their meaning.
    """
    def swirl(x, y):
        return torch.sin(x) * y + torch.exp(-x * x)

    x, y = torch.randn(1000, dtype=torch.float64), torch.randn(1000, dtype=torch.float64)
    fast = torch.compile(swirl)
    fast(x, y)
    made = kernels_made_by(lambda: (fast(x, y), fast(x, y)))
    assert torch.allclose(fast(x, y), swirl(x, y))
    show("six ops, one kernel", made[-1] if made else "(known already)")
    show("what compile says about it", torch.compiler.explain(swirl, x, y))

    # The same with a whole training step: forward, backward and update.
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, wanted = torch.randn(16, 8), torch.randn(16, 1)

    @torch.compile
    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(20)]
    show("a compiled training step", f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")


def chapter_8_a_new_op():
    """The last chapter: an op that PyTorch does not have, in one declaration.

    In the library this stands in a file of flambeau/ops, and importing flambeau does the rest;
    here the last lines do by hand what flambeau/assemble.py does for all ops.
    """
    from flambeau.ops.exponential import log1p

    @pointwise(FLOAT)
    def squash(x, *, scale=1.0):
        """sign(x) log(1 + |x| / scale): large values made small, small ones kept."""
        size = expr.call("abs", x) / scale
        return expr.where(x < 0, -log1p(size), log1p(size))

    assemble.plug(squash)              # the front that looks up plans
    assemble.adopt("squash", squash)   # function, method, in-place form
    torch.squash = assemble.functions["squash"]

    x = torch.tensor([-100.0, -1.0, 0.0, 1.0, 100.0])
    show("a function", torch.squash(x))
    show("a method, with its attribute", x.squash(scale=10.0))
    show("in place", x.clone().squash_())
    show("its documentation", torch.squash.__doc__)
    show("integers become floats, as the rule FLOAT says", torch.squash(torch.arange(3)))

    # Its gradient was derived; here it meets finite differences, near zero and far from it.
    points = torch.tensor([-30.0, -0.5, 0.25, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.squash, points)
    assert torch.autograd.gradgradcheck(torch.squash, points)
    show("first and second gradient", "agree with finite differences")
    seed = {expr.input(1, dtype.float64): expr.const(1, dtype.float64)}
    body = squash.element([expr.input(1, dtype.float64)], {"scale": 1.0})
    show("the slope that was derived", expr.tangent(body, seed))

    # And its machine code meets the reference.
    element = squash.element([expr.input(0, dtype.float64)], {"scale": 1.0})
    numbers = points.detach().numpy()
    difference = reference.evaluate(element, [numbers]) - points.squash().detach().numpy()
    assert abs(difference).max() < 1e-12
    show("machine code and the reference device", "agree")

    # In the library, tests/test_registry.py finds it in the registry and does all of this by
    # itself, for every layout and dtype; `python tools/make_stubs.py` writes its type stub.
    compiled = torch.compile(lambda x: torch.squash(x) * 2)
    assert torch.equal(compiled(x), torch.squash(x) * 2)
    show("compile", "knows it too")


CHAPTERS = [value for name, value in list(globals().items()) if name.startswith("chapter_")]


def main(chosen):
    for number, chapter in enumerate(CHAPTERS, 1):
        if not chosen or str(number) in chosen:
            title = chapter.__name__.removeprefix(f"chapter_{number}_").replace("_", " ")
            print(f"\n{'=' * 78}\n{number}. {title}\n{'=' * 78}")
            print(textwrap.dedent("    " + chapter.__doc__).strip())
            chapter()


if __name__ == "__main__":
    main(sys.argv[1:])
