"""What a solve will cost, before it is begun: counts, memory, time; needs no MPI library."""
