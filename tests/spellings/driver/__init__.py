"""The driver of the applications in `apps`: it spells requests in every way of `variants.toml`."""
