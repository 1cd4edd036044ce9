// Golden writes the ranks of many names as Go Rink v2 computes them: the two packages imported
// below, on the same bytes. tests/core/test_hashing.py compares Python with them.
//
// The file, gzipped: the SHA-256 of all names, each preceded by its length in bytes and a colon;
// then for each name one byte per size from 1 to 64, the rank. The names are not stored, since
// both sides make the same ones from the SHA-256 of a name's number.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"strings"

	"github.com/dgryski/go-jump"
)

const (
	names = 100_000
	sizes = 64
)

var alphabets = [][]rune{
	[]rune("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_./ "),
	[]rune("äöüßñçéøÅ日本語한국中文αβγЖщ🙂🚀🛷e\u0301\u00a0\u200d\x00\t\n/% 019"),
}

// name makes the name of a number: four that are fixed, every hundredth 200 bytes long, half of
// the others ASCII and half not, 1 to 28 characters each.
func name(number int) string {
	switch number {
	case 0:
		return ""
	case 1:
		return "test"
	case 2:
		return "leader"
	case 3:
		return "BTC/ETH"
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(number)))
	if number%100 == 0 {
		return strings.Repeat(hex.EncodeToString(sum[:]), 4)[:200]
	}
	alphabet := alphabets[sum[0]%2]
	var made strings.Builder
	for _, choice := range sum[2 : 3+sum[1]%28] {
		made.WriteRune(alphabet[int(choice)%len(alphabet)])
	}
	return made.String()
}

// rank hashes a role as Go Rink v2 does, which reads the same number, big-endian, from Sum.
func rank(role string, size int32) byte {
	h := fnv.New64a()
	h.Write([]byte(role))
	return byte(jump.Hash(h.Sum64(), int(size)))
}

func main() {
	sum := sha256.New()
	var ranks bytes.Buffer
	for number := range names {
		role := name(number)
		fmt.Fprintf(sum, "%d:%s", len(role), role)
		for size := int32(1); size <= sizes; size++ {
			ranks.WriteByte(rank(role, size))
		}
	}
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		log.Fatal(err)
	}
	for _, part := range [][]byte{sum.Sum(nil), ranks.Bytes()} {
		if _, err := writer.Write(part); err != nil {
			log.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], packed.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
