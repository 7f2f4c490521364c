package imageref

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// CheckSecretName returns why no secret can be asked for by a name in a job, or nil. The API server has no path for
// such a name: it may be empty, or the name of another namespace may precede it.
func CheckSecretName(name string) error {
	if name == "" {
		return errors.New("it is empty")
	}
	if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
		return errors.New("it " + strings.Join(wrong, ", and "))
	}
	return nil
}
