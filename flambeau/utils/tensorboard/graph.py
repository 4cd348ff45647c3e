"""A model as a graph for TensorBoard: modules as nodes, joined where tensors pass between them."""

import flambeau
from flambeau.utils.tensorboard import wire


def _tensors(value):
    if isinstance(value, flambeau.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


class Tracing:
    """Follows one call of a model through its innermost modules."""

    def __init__(self, model):
        self.names = {module: name or type(model).__name__ for name, module
                      in model.named_modules()}
        self.root = type(model).__name__
        self.nodes = []  # (name, kind, names of inputs)
        self.made_by = {}
        self.held = []  # an id means something only while its tensor lives

    def run(self, model, inputs):
        leaves = [m for m in self.names if not any(True for _ in m.children())]
        for k, x in enumerate(_tensors(inputs)):
            self._made(f"input/{k}", "Placeholder", (), x)
        handles = [m.register_forward_hook(self._called) for m in leaves]
        was_training = model.training
        try:
            with flambeau.no_grad():
                result = model.eval()(*inputs)
        finally:
            model.train(was_training)
            for handle in handles:
                handle.remove()
        for k, x in enumerate(_tensors(result)):
            self.nodes.append((f"output/{k}", "Identity", self._sources(x)))

    def _called(self, module, args, output):
        name = f"{self.root}/{self.names[module].replace('.', '/')}"
        self._made(name, type(module).__name__, self._sources(args), output)

    def _sources(self, value):
        """What made these tensors; what was computed between modules, what came last."""
        last = [self.nodes[-1][0]] if self.nodes else []
        found = [self.made_by.get(id(x)) for x in _tensors(value)]
        return list(dict.fromkeys(name for f in found for name in ([f] if f else last)))

    def _made(self, name, kind, sources, value):
        taken = {node[0] for node in self.nodes}
        unique, calls = name, 0
        while unique in taken:
            calls += 1
            unique = f"{name}_{calls}"
        self.nodes.append((unique, kind, sources))
        for x in _tensors(value):
            self.made_by[id(x)] = unique
            self.held.append(x)


def graph_of(model, inputs):
    """TensorFlow's GraphDef of a model called once on inputs."""
    tracing = Tracing(model)
    tracing.run(model, inputs if isinstance(inputs, (list, tuple)) else (inputs,))
    nodes = [wire.message(1, wire.message(1, name), wire.message(2, kind),
                          *(wire.message(3, each) for each in sources))
             for name, kind, sources in tracing.nodes]
    return b"".join(nodes) + wire.message(4, wire.integer(1, 22))
