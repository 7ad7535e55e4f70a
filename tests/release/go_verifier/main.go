// Verify a proof of auditlake with the libraries of Go's checksum database: the signature of the checkpoint, and the
// path from each page to the root. Usage: verify PUBLIC_KEY < proof.json
package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type page struct {
	Hashes []string
	Path   []string
}

type proof struct {
	Checkpoint string
	Pages      map[string]page
}

func main() {
	verifier := must(note.NewVerifier(os.Args[1]))
	var given proof
	check(json.NewDecoder(os.Stdin).Decode(&given))
	signed := must(note.Open([]byte(given.Checkpoint), note.VerifierList(verifier)))
	lines := strings.Split(signed.Text, "\n")
	size := must(strconv.ParseInt(lines[1], 10, 64))
	var root tlog.Hash
	copy(root[:], must(base64.StdEncoding.DecodeString(lines[2])))
	for leaf, each := range given.Pages {
		content := []byte("auditlake page 1\n")
		for _, hash := range each.Hashes {
			content = append(content, must(hex.DecodeString(hash))...)
		}
		var path tlog.RecordProof
		for _, node := range each.Path {
			var hash tlog.Hash
			copy(hash[:], must(base64.StdEncoding.DecodeString(node)))
			path = append(path, hash)
		}
		index := must(strconv.ParseInt(leaf, 10, 64))
		check(tlog.CheckRecord(path, size, root, index, tlog.RecordHash(content)))
	}
	fmt.Println(lines[0], size, len(given.Pages))
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
