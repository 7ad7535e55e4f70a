/* Floor of sealing: for 400,000 changes one SHA-256 of 155 bytes, and one of a node of a Merkle tree, in CPU-seconds.

       cc -O2 -Wno-deprecated-declarations bench/hash_floor.c -lcrypto -o build/hash_floor && build/hash_floor
*/
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHANGES = 400000, TEXT_BYTES = 155, HASH_BYTES = SHA256_DIGEST_LENGTH };

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void hash(const unsigned char *content, size_t bytes, unsigned char *digest) {
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, content, bytes);
    SHA256_Final(digest, &context);
}

int main(void) {
    unsigned char *texts = malloc((size_t)CHANGES * TEXT_BYTES), *hashes = malloc((size_t)CHANGES * HASH_BYTES);
    unsigned char node[1 + 2 * HASH_BYTES] = {1}, root[HASH_BYTES];
    if (!texts || !hashes) return 1;
    for (size_t at = 0; at < (size_t)CHANGES * TEXT_BYTES; at++) texts[at] = (unsigned char)(at * 2654435761u >> 13);
    double begun = cpu_s();
    for (size_t n = 0; n < CHANGES; n++) hash(texts + n * TEXT_BYTES, TEXT_BYTES, hashes + n * HASH_BYTES);
    double hashed = cpu_s();
    for (size_t n = 0; n < CHANGES; n++) {
        memcpy(node + 1, hashes + (n & ~(size_t)1) * HASH_BYTES, 2 * HASH_BYTES);
        hash(node, sizeof node, root);
    }
    printf("changes %.3f nodes %.3f\n", hashed - begun, cpu_s() - hashed);
    return 0;
}
