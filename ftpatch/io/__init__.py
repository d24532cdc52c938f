# SPDX-License-Identifier: MIT
"""Files of the system: outputs, temporaries, trees, and what is cleaned up on a signal."""
