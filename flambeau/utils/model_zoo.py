"""Checkpoints from the net, under the names they had before there was a hub."""

from flambeau.hub import load_state_dict_from_url

__all__ = ["load_state_dict_from_url", "load_url"]

load_url = load_state_dict_from_url
