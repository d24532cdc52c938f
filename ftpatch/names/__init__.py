# SPDX-License-Identifier: MIT
"""Names of functions and variables: as symbol tables have them, and as people write them."""
