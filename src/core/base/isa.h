/*
 * isa.h - names of a source that is compiled once per instruction set.
 *
 * CMake compiles every *_kernels.c three times (once on processors other than x86-64),
 * each time with the flags of one instruction set and with SONDE__ISA defined as its
 * name: generic, avx2 or avx512. ISA(name) is then name_generic, name_avx2 or
 * name_avx512. cmake/Kernels.cmake does this; sonde__cpu_isa() chooses at run time.
 */
#ifndef SONDE_BASE_ISA_H
#define SONDE_BASE_ISA_H

#ifndef SONDE__ISA
#error "SONDE__ISA is not defined: name this source x_kernels.c and let CMake compile it"
#endif

#define SONDE__ISA_PASTE(name, isa) name##_##isa
#define SONDE__ISA_EXPAND(name, isa) SONDE__ISA_PASTE(name, isa)
#define ISA(name) SONDE__ISA_EXPAND(name, SONDE__ISA)

#endif
