"""Experience as it is kept: observations as bytes, records as words, the ring of raw steps. Imports types and core."""

from highway_rl.data.codec import Codec, codec, codec_of
from highway_rl.data.packing import Packing, packing
from highway_rl.data.ring import Rows, Store

__all__ = ["Codec", "Packing", "Rows", "Store", "codec", "codec_of", "packing"]
