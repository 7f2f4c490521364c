package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/plugin/installation"
)

// index is the file that is written last: a folder without it is no backup.
const index = "index.json"

// reference names an object.
type reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

func referenceTo(object *unstructured.Unstructured) reference {
	return reference{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}
}

func (r reference) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// contents is what the index says.
type contents struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// Saved are the objects in the folder. Absent are those of the manifests that the cluster did not have. Removed are those that go.
	Saved   []reference `json:"saved"`
	Absent  []reference `json:"absent"`
	Removed []reference `json:"removed,omitempty"`
	// Pods are those of workloads, as they were.
	Pods map[string]fingerprint `json:"pods"`
	// Used are gates that somebody used, of those that are carried over only then.
	Used map[featuregate.Feature]bool `json:"used,omitempty"`
	// Unserved is what nobody serves from then on.
	Unserved []string `json:"unserved,omitempty"`
}

// backup is what a folder has.
type backup struct {
	contents
	objects []*unstructured.Unstructured
}

func (b *backup) find(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	return installation.Find(b.objects, kind.Kind, name)
}

// readBackup reads a folder. It is nil if there is no complete backup in it.
func readBackup(folder string) (*backup, error) {
	text, err := os.ReadFile(filepath.Join(folder, index))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	b := &backup{}
	if err == nil {
		err = json.Unmarshal(text, &b.contents)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the backup: %w", err)
	}
	for _, saved := range b.Saved {
		text, err := os.ReadFile(filepath.Join(folder, saved.file()))
		if err != nil {
			return nil, fmt.Errorf("reading the backup: %w", err)
		}
		objects, err := installation.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s of the backup: %w", saved.file(), err)
		}
		b.objects = append(b.objects, objects...)
	}
	return b, nil
}

// file is the name of the file of an object.
func (r reference) file() string {
	parts := []string{strings.ToLower(r.Kind), r.Namespace, strings.ReplaceAll(r.Name, ":", "-")}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "_") + ".yaml"
}

// save writes what is replaced or removed into the folder, unless it is there already.
func (t *takeover) save(ctx context.Context, s *seen) error {
	if saved, err := readBackup(t.backup); err != nil || saved != nil {
		if saved != nil && saved.Namespace != t.choice.Namespace {
			return fmt.Errorf("the backup in %s is of namespace %s, not %s", t.backup, saved.Namespace, t.choice.Namespace)
		}
		t.say("kept: %s", t.backup)
		return err
	}
	if err := os.MkdirAll(t.backup, 0o700); err != nil {
		return fmt.Errorf("making the folder of the backup: %w", err)
	}
	b := contents{Cluster: t.cluster, Namespace: t.choice.Namespace, Unserved: s.refusals, Used: s.used}
	keep := func(object *unstructured.Unstructured) error {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", installation.Of(object), err)
		}
		r := referenceTo(object)
		if slices.Contains(b.Saved, r) {
			return nil
		}
		b.Saved = append(b.Saved, r)
		return write(filepath.Join(t.backup, r.file()), text)
	}
	for _, wanted := range t.manifests {
		live, err := installation.Get(ctx, t.client, wanted.GroupVersionKind(), wanted.GetNamespace(), wanted.GetName())
		if err != nil {
			return err
		}
		if live == nil {
			b.Absent = append(b.Absent, referenceTo(wanted))
			continue
		}
		if err := keep(live); err != nil {
			return err
		}
	}
	for _, kind := range s.kinds {
		if err := keep(kind.definition); err != nil {
			return err
		}
	}
	extra, err := t.superfluous(ctx)
	if err != nil {
		return err
	}
	for _, object := range extra {
		b.Removed = append(b.Removed, referenceTo(object))
		if err := keep(object); err != nil {
			return err
		}
	}
	if err := t.saveSecret(ctx); err != nil {
		return err
	}
	if b.Pods, err = t.fingerprints(ctx); err != nil {
		return err
	}
	if err := b.write(t.backup); err != nil {
		return err
	}
	t.say("%s and the state of %s in %s", plural.Of(len(b.Saved), "object"), plural.Of(len(b.Pods), "pod"), t.backup)
	return nil
}

// write writes the index.
func (c *contents) write(folder string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the index of the backup: %w", err)
	}
	return write(filepath.Join(folder, index), text)
}

// saveSecret writes that there was a Secret, without what is in it. It stays where it is, and is not put back.
func (t *takeover) saveSecret(ctx context.Context) error {
	secret, err := installation.Get(ctx, t.client, installation.Secrets, t.choice.Namespace, installation.Secret)
	if secret == nil {
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	metadata := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": secret.Object["metadata"]}
	unstructured.RemoveNestedField(metadata, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	text, err := yaml.Marshal(metadata)
	if err != nil {
		return fmt.Errorf("encoding the Secret: %w", err)
	}
	return write(filepath.Join(t.backup, "secret-without-data.yaml"), text)
}

// write makes a file that only the user can read, as a whole or not at all.
func write(path string, text []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return fmt.Errorf("writing the backup: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("writing the backup: %w", err)
	}
	return nil
}

// superfluous are the rights of the other manager that the manifests do not give: the bindings named kruise-... of its accounts, and the
// roles named
// kruise-... that these bind. Bindings with other names are the users' own, such as those for custom workloads.
func (t *takeover) superfluous(ctx context.Context) ([]*unstructured.Unstructured, error) {
	rbac := func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: kind}
	}
	have := map[reference]bool{}
	for _, object := range t.manifests {
		have[referenceTo(object)] = true
	}
	var extra []*unstructured.Unstructured
	take := func(object *unstructured.Unstructured) bool {
		if !strings.HasPrefix(object.GetName(), "kruise-") || have[referenceTo(object)] {
			return false
		}
		have[referenceTo(object)] = true
		extra = append(extra, object)
		return true
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		if err := installation.Each(ctx, t.client, rbac(kind), func(binding *unstructured.Unstructured) error {
			if !slices.ContainsFunc(installation.Maps(binding.Object, "subjects"), t.isAccount) || !take(binding.DeepCopy()) {
				return nil
			}
			namespace, of := binding.GetNamespace(), installation.Text(binding.Object, "roleRef", "kind")
			if of == "ClusterRole" {
				namespace = ""
			}
			role, err := installation.Get(ctx, t.client, rbac(of), namespace, installation.Text(binding.Object, "roleRef", "name"))
			if role != nil {
				take(role)
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return extra, nil
}

// isAccount tells whether a subject of a binding is an account of a manager or a node daemon.
func (t *takeover) isAccount(subject map[string]any) bool {
	name, _ := subject["name"].(string)
	return subject["namespace"] == t.choice.Namespace && (name == "kruise-manager" || name == "kruise-daemon")
}

// get reads an object that is in the backup or the manifests, as it is now.
func (t *takeover) get(ctx context.Context, r reference) (*unstructured.Unstructured, error) {
	return installation.Get(ctx, t.client, r.kind(), r.Namespace, r.Name)
}

// remove deletes an object, if it is there.
func (t *takeover) remove(ctx context.Context, r reference) error {
	live, err := t.get(ctx, r)
	if err != nil || live == nil {
		return err
	}
	uid := live.GetUID()
	if err := t.client.Delete(ctx, live, client.Preconditions{UID: &uid},
		client.PropagationPolicy("Background")); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing %s: %w", installation.Of(live), err)
	}
	return nil
}
