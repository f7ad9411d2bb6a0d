/* A program of somebody else's, against the installed package alone. */
#include <stdio.h>
#include <string.h>

#include <sonde/sonde.h>

int main(void)
{
    (void)puts(sonde_err_name(SONDE_ENOMEM));
    return strcmp(sonde_err_name(SONDE_ENOMEM), "SONDE_ENOMEM") == 0 ? 0 : 1;
}
