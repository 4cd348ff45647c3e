"""Values of a summary: scalars, histograms, images, sound, text, curves, hyper-parameters.

Each function gives the `value` field of TensorBoard's Summary message.
"""

import io
import wave

import numpy

import flambeau
from flambeau.utils.tensorboard import pictures, wire

FLOAT, STRING = 1, 7  # TensorFlow's numbers of dtypes
HPARAM_TYPES = {str: 1, bool: 2, float: 3}
SUCCESS = 1


def array_of(x):
    """Numbers, lists, arrays and tensors as one numpy array."""
    if isinstance(x, flambeau.Tensor):
        x = x.detach()
        return x.float().numpy() if x.dtype is flambeau.bfloat16 else x.numpy()
    return numpy.asarray(x)


def _value(tag, *fields):
    return wire.message(1, wire.message(1, tag), *fields)


def _plugin(name, content=b""):
    return wire.message(9, wire.message(1, wire.message(1, name), wire.message(2, content)))


def _tensor(kind, shape, content):
    dims = [wire.message(2, wire.integer(1, n)) for n in shape]
    return wire.message(8, wire.integer(1, kind), wire.message(2, *dims), content)


def scalar(tag, value, new_style=False, double_precision=False):
    """One number."""
    value = array_of(value)
    if value.size != 1:
        raise ValueError(f"add_scalar: '{tag}' must be one number, got shape {value.shape}")
    number = float(value.reshape(()))
    if new_style or double_precision:
        content = wire.double(6, number) if double_precision else wire.single(5, number)
        return _value(tag, _plugin("scalars"), _tensor(2 if double_precision else FLOAT, (),
                                                       content))
    return _value(tag, wire.single(2, number))


# -- histograms ----------------------------------------------------------------------------------


def _growing_edges():
    """Edges that grow by a tenth each, from 1e-12 to 1e20, and the same below zero."""
    edges = [1e-12]
    while edges[-1] * 1.1 < 1e20:
        edges.append(edges[-1] * 1.1)
    return numpy.array([-e for e in reversed(edges)] + [0.0] + edges)


def histogram(tag, values, bins="tensorflow", max_bins=None):
    """How values are spread."""
    values = array_of(values).reshape(-1).astype(numpy.float64)
    if values.size == 0:
        raise ValueError(f"add_histogram: '{tag}' has no values")
    edges = _growing_edges() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, edges = numpy.histogram(values, bins=edges)
    if max_bins is not None and len(counts) > max_bins:
        factor = len(counts) // max_bins
        padded = numpy.pad(counts, (0, -len(counts) % factor))
        counts = padded.reshape(-1, factor).sum(1)
        edges = numpy.append(edges[:-1][::factor], edges[-1])
    filled = numpy.flatnonzero(counts)
    if filled.size == 0:
        raise ValueError(f"add_histogram: no value of '{tag}' lies in a bin")
    first, last = filled[0], filled[-1]
    # A reader takes the lower edge of a bin from the bin before: so one empty bin comes first.
    limits = edges[first:last + 2]
    kept = numpy.concatenate([[0], counts[first:last + 1]])
    return raw_histogram(tag, values.min(), values.max(), values.size, values.sum(),
                         values @ values, limits, kept)


def raw_histogram(tag, low, high, count, total, squares, limits, counts):
    """A histogram that has been counted already."""
    return _value(tag, wire.message(
        5, wire.double(1, low), wire.double(2, high), wire.double(3, count), wire.double(4, total),
        wire.double(5, squares), wire.doubles(6, [float(x) for x in limits]),
        wire.doubles(7, [float(x) for x in counts])))


# -- pictures, sound, text -----------------------------------------------------------------------


def image(tag, pixels):
    """A picture: uint8 of shape (height, width, channels)."""
    height, width, channels = pixels.shape
    return _value(tag, wire.message(
        4, wire.integer(1, height), wire.integer(2, width), wire.integer(3, channels),
        wire.message(4, pictures.png(pixels))))


def audio(tag, sound, sample_rate=44100):
    """A wave between -1 and 1."""
    samples = array_of(sound).reshape(-1)
    if samples.size and abs(samples).max() > 1:
        samples = samples.clip(-1, 1)
    packed = io.BytesIO()
    with wave.open(packed, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return _value(tag, wire.message(
        6, wire.single(1, sample_rate), wire.integer(2, 1), wire.integer(3, samples.size),
        wire.message(4, packed.getvalue()), wire.message(5, "audio/wav")))


def text(tag, content):
    """Markdown."""
    return _value(tag + "/text_summary", _plugin("text"),
                  _tensor(STRING, (1,), wire.message(8, content)))


# -- curves and layouts --------------------------------------------------------------------------


def pr_curve(tag, labels, predictions, num_thresholds=127, weights=None):
    """Precision and recall for thresholds between 0 and 1."""
    labels, predictions = array_of(labels).reshape(-1), array_of(predictions).reshape(-1)
    count = min(num_thresholds, 127)  # what the dashboard can show
    weights = 1.0 if weights is None else array_of(weights).reshape(-1)
    buckets = numpy.floor(predictions * (count - 1)).astype(int)
    span = (0, count - 1)
    positive = labels.astype(float) * weights
    true, _ = numpy.histogram(buckets, bins=count, range=span, weights=positive)
    false, _ = numpy.histogram(buckets, bins=count, range=span,
                               weights=(1.0 - labels.astype(float)) * weights)
    tp, fp = true[::-1].cumsum()[::-1], false[::-1].cumsum()[::-1]
    return pr_curve_raw(tag, tp, fp, fp[0] - fp, tp[0] - tp, tp / numpy.maximum(1e-7, tp + fp),
                        tp / numpy.maximum(1e-7, tp + (tp[0] - tp)), count)


def pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds=127):
    """A curve that has been counted already."""
    rows = numpy.stack([array_of(x) for x in (tp, fp, tn, fn, precision, recall)])
    content = wire.integer(1, 0) + wire.integer(2, min(num_thresholds, 127))
    return _value(tag, _plugin("pr_curves", content),
                  _tensor(FLOAT, rows.shape, wire.singles(5, rows.reshape(-1).tolist())))


def custom_scalars(layout):
    """Which scalars are drawn together: {category: {chart: [kind, tags]}}."""
    categories = []
    for title, charts in layout.items():
        drawn = []
        for name, (kind, tags) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise ValueError(f"add_custom_scalars: '{name}' needs the tags of the value, "
                                     "the lower and the upper bound")
                series = [wire.message(k + 1, each) for k, each in enumerate(tags)]
                lines = wire.message(3, wire.message(1, *series))
            else:
                lines = wire.message(2, *(wire.message(1, each) for each in tags))
            drawn.append(wire.message(2, wire.message(1, name), lines))
        categories.append(wire.message(2, wire.message(1, title), *drawn))
    return _value("custom_scalars__config__", _plugin("custom_scalars"),
                  _tensor(STRING, (), wire.message(8, b"".join(categories))))


# -- hyper-parameters ----------------------------------------------------------------------------


def _kind_of(name, value):
    if isinstance(value, flambeau.Tensor):
        value = value.item()
    for kind in (bool, str):
        if isinstance(value, kind):
            return kind, value
    if isinstance(value, (int, float, numpy.number)):
        return float, float(value)
    raise ValueError(f"add_hparams: '{name}' should be one of int, float, str, bool, or "
                     f"Tensor, not {type(value).__name__}")


def _any(kind, value):
    """A google.protobuf.Value."""
    if kind is str:
        return wire.message(3, value)
    return wire.integer(4, value) if kind is bool else wire.double(2, value)


def hparams(hparam_dict, metric_dict, domains=None):
    """The values that open a session, say what it tries, and close it."""
    if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
        raise TypeError("add_hparams: hparam_dict and metric_dict should be dictionaries")
    infos, given = [], []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        kind, value = _kind_of(name, value)
        info = wire.message(1, name) + wire.integer(4, HPARAM_TYPES[kind])
        if name in (domains or {}):
            info += wire.message(5, *(wire.message(1, _any(kind, v)) for v in domains[name]))
        infos.append(wire.message(4, info))
        given.append(wire.message(1, wire.message(1, name), wire.message(2, _any(kind, value))))
    metrics = [wire.message(5, wire.message(1, wire.message(2, tag))) for tag in metric_dict]

    def session(tag, number, *content):
        data = wire.integer(1, 0) + wire.message(number, *content)
        return _value(f"_hparams_/{tag}", _plugin("hparams", data))

    return (session("experiment", 2, *infos, *metrics),
            session("session_start_info", 3, *given),
            session("session_end_info", 4, wire.integer(1, SUCCESS)))
