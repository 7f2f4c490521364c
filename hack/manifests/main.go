// Command manifests writes what the manifests say of each kind from the list of kinds in internal/registry: the
// entries of the webhook configurations, and what the roles of users allow.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/registry"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes the manifests in a folder, which is config.
func write(config string) error {
	scalable, err := scaled(filepath.Join(config, "crd/bases"))
	if err != nil {
		return err
	}

	roles, err := encode(usersRoles(registry.Kinds, scalable))
	if err != nil {
		return err
	}

	return errors.Join(
		entries(filepath.Join(config, "webhook/mutating.yaml"), "mutate"),
		entries(filepath.Join(config, "webhook/validating.yaml"), "validate"),
		os.WriteFile(filepath.Join(config, "rbac/aggregated.yaml"), roles, 0o644), //nolint:gosec // sources are for everybody
	)
}

// The entries of the kinds are between these lines of a webhook configuration.
const (
	begin = "# The entries of the kinds are written by `make generate` from internal/registry.\n"
	end   = "# These are the entries of objects that are not of our kinds.\n"
)

// entries replaces the entries of the kinds in a webhook configuration.
func entries(file, verb string) error {
	list, err := admission.Entries(registry.Kinds, verb)
	if err != nil {
		return err
	}

	written, err := yaml.Marshal(list)
	if err != nil {
		return fmt.Errorf("encoding the entries of %s: %w", file, err)
	}

	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the webhook configuration: %w", err)
	}

	before, rest, found := bytes.Cut(old, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s has no place for the entries of the kinds", file)
	}

	text := fmt.Sprintf("%s%s%s%s%s", before, begin, written, end, after)
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // sources are for everybody
}
