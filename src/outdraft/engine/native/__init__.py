"""The compiled part of the engine: whole steps on a CPU, in C (`step.h`), called through ctypes."""
