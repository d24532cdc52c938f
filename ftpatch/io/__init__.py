# SPDX-License-Identifier: MIT
"""The file system: outputs, temporaries, trees, and cleaning up on a signal."""
