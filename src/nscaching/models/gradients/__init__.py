"""Kernels that give the loss of a batch and its gradients in one pass, a file a family and device.

``FAMILY_cpu`` and ``FAMILY_gpu`` have a function ``gradients`` each, with the same arguments.
"""
