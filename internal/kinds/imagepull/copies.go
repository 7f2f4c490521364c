package imagepull

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// CopyMark is how the name of a copy of a pull secret ends, which tells from what namespace it was copied. All jobs for
// an image share its list of secrets, of which a tenant may have thousands; a node daemon reads those alone that the
// jobs of a tag may use.
func CopyMark(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	return ".n" + hex.EncodeToString(sum[:4])
}

var copyMark = regexp.MustCompile(`\.n[0-9a-f]{8}$`)

// CopyOfOthers reports whether the name of a secret says that it is a copy for jobs of other namespaces than these. It
// is false for a copy of an earlier release, whose name does not tell, and for a secret in one of the namespaces.
func CopyOfOthers(name types.NamespacedName, namespaces []string) bool {
	mark := copyMark.FindString(name.Name)
	return mark != "" && len(namespaces) > 0 && !slices.ContainsFunc(namespaces, func(namespace string) bool {
		return namespace == name.Namespace || CopyMark(namespace) == mark
	})
}
