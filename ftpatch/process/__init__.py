# SPDX-License-Identifier: MIT
"""Running processes: what is mapped where, and the images in their memory."""
