"""What torch.fx.experimental has that is made of graphs alone."""

from flambeau.fx.experimental import optimization

__all__ = ["optimization"]
