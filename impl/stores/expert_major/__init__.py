"""ExpertMajor v2: families, layout, reader, writer, codecs and record digests."""
