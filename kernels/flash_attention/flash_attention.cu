/* Causal attention on Hopper's tensor cores, for heads of 64 and 128 in bf16.
 *
 * A block of the grid has one warpgroup that only asks for copies (its first thread does), and others that compute.
 * Tiles wait in rings of stages. Scores are kept in units of log2: exp is one instruction. Blocks wholly in the future
 * are never visited; only the diagonal's are masked.
 */
#include "forward.cuh"
#include "backward.cuh"
