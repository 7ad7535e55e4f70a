// A witness of the C2SP tlog-witness protocol, made of the libraries of transparency-dev's. It keeps its state in memory.
// Usage: witness LOG_PUBLIC_KEY. It prints its address and its public key, and serves until it is killed.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	ofLog := must(note.NewVerifier(os.Args[1]))
	private, public, err := note.GenerateKey(rand.Reader, "witness.example/w1")
	check(err)
	signer := must(cosignature.NewSignerForCosignatureV1(private))
	serving := must(witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(),
		Signers:     []note.Signer{signer},
		VerifierForLog: func(context.Context, string) (note.Verifier, bool, error) {
			return ofLog, true, nil
		},
	}))
	http.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(serving).AddCheckpoint)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println(listener.Addr(), must(cosignature.VKeyToCosignatureV1(public)))
	check(http.Serve(listener, nil))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
