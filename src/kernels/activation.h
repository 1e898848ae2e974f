/* The part of an MLP between its products. */
#ifndef SP_ACTIVATION_H
#define SP_ACTIVATION_H

/* All are u S(u), with S between 0 and 1. */
enum sp_activation {
    SP_GELU_TANH,  /* S = 0.5 (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))) */
    SP_GELU,       /* S = 0.5 (1 + erf(u / sqrt 2)) */
    SP_GELU_QUICK, /* S = 1 / (1 + e^(-1.702 u)) */
    SP_SILU,       /* S = 1 / (1 + e^-u) */
    SP_ACTIVATIONS
};

#endif
