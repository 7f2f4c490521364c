// Package imageref converts image names to the form in which NodeImages list them (IMG-011 to IMG-013).
package imageref

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// Parse splits an image into its name in familiar form and its digest or tag. Without either of these, the
// tag is latest.
func Parse(image string) (name, tag string, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", "", fmt.Errorf("image %q: %w", image, err)
	}
	name = reference.FamiliarName(named)
	if digested, ok := named.(reference.Digested); ok {
		return name, digested.Digest().String(), nil
	}
	if tagged, ok := named.(reference.Tagged); ok {
		return name, tagged.Tag(), nil
	}
	return name, "latest", nil
}

// Full returns the reference to pull: name:tag, or name@digest.
func Full(name, tag string) string {
	if strings.Contains(tag, ":") { // only a digest contains a colon
		return name + "@" + tag
	}
	return name + ":" + tag
}
