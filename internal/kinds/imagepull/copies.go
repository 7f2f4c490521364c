package imagepull

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// CopyMark is how the name of a copy of a pull secret ends, which tells from what namespace it was copied. All jobs for
// an image share its list of secrets, of which a tenant may have thousands; a node daemon reads those alone that the
// jobs of a tag may use. The mark is so long that no tenant can find a name for a namespace whose copies have the mark of
// another one: a node knows nothing else of a copy before it reads it.
func CopyMark(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	return ".n" + hex.EncodeToString(sum[:10])
}

var copyMark = regexp.MustCompile(`\.n[0-9a-f]{20}$`)

// CopyMarkIn returns how the name of a copy ends. It is empty for a copy of an earlier release, whose name does not tell.
func CopyMarkIn(name string) string { return copyMark.FindString(name) }
