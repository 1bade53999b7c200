"""thinwire-perf: what collectives and codecs cost here, beside what they replace. See `thinwire-perf --help`."""
