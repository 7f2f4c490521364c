package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// index is the file that is written last. A folder without it is not a backup.
const index = "index.json"

// reference identifies an object.
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

// contents is the content of the index file.
type contents struct {
	Cluster string `json:"cluster"`
	// ClusterUID is the UID of the namespace kube-system, which identifies the cluster.
	ClusterUID string `json:"clusterUID,omitempty"`
	Namespace  string `json:"namespace"`
	// GoneBack is when everything was restored. From then on, the folder is used up.
	GoneBack string `json:"goneBack,omitempty"`
	// Saved are the objects in the folder, Absent those of the manifests that did not exist before, and
	// Removed those that the takeover deletes.
	Saved   []reference `json:"saved"`
	Absent  []reference `json:"absent"`
	Removed []reference `json:"removed,omitempty"`
	// Narrowed are role bindings that have other subjects as well. They lose only the accounts of the
	// installation.
	Narrowed []reference `json:"narrowed,omitempty"`
	// Pods are the fingerprints of the workloads' pods before the takeover.
	Pods map[string]fingerprint `json:"pods"`
	// Used are those gates in use that are carried over only if they are used.
	Used map[featuregate.Feature]bool `json:"used,omitempty"`
	// Unserved is what nobody serves after the takeover.
	Unserved []string `json:"unserved,omitempty"`
}

// backup is the content of a folder.
type backup struct {
	contents
	objects []*unstructured.Unstructured
}

func (b *backup) find(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	return installation.Find(b.objects, kind.Kind, name)
}

// readBackup reads a folder. It returns nil if the folder has no complete backup.
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

// backupOf reads the backup, and returns an error if it is of another cluster or used up.
func (t *takeover) backupOf(ctx context.Context) (*backup, error) {
	b, err := readBackup(t.backup)
	if err != nil || b == nil {
		return nil, err
	}

	uid, err := t.clusterUID(ctx)
	if err != nil {
		return nil, err
	}

	if b.ClusterUID == "" && uid != "" { // written by an earlier build
		t.say("the backup in %s does not tell of which cluster it is: it was called %s", t.backup, b.Cluster)
	} else if b.ClusterUID != uid {
		return nil, fmt.Errorf("nothing was changed: the backup in %s is of another cluster, which was called %s: check --context, "+
			"or name another folder with --backup", t.backup, b.Cluster)
	}

	if b.GoneBack != "" {
		return nil, fmt.Errorf("nothing was changed: what is in %s was put back on %s, so that it does not tell any more what there is: "+
			"name another folder with --backup", t.backup, b.GoneBack)
	}

	return b, nil
}

// clusterUID returns the UID of the namespace kube-system.
func (t *takeover) clusterUID(ctx context.Context) (string, error) {
	namespace, err := installation.Get(ctx, t.client,
		schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", "kube-system")
	if namespace == nil {
		return "", err
	}
	return string(namespace.GetUID()), err
}

// useUp records that everything was restored.
func (t *takeover) useUp() error {
	b, err := readBackup(t.backup)
	if err != nil || b == nil {
		return err
	}
	b.GoneBack = t.now().UTC().Format(time.RFC3339)
	return b.write(t.backup)
}

// stale returns the objects that differ from the backup although no takeover has begun since, which means
// that the backup is outdated.
func (t *takeover) stale(ctx context.Context, b *backup) ([]string, error) {
	var stale []string
	for _, saved := range b.objects {
		live, err := t.get(ctx, referenceTo(saved))
		if err != nil {
			return nil, err
		}
		if live == nil {
			stale = append(stale, installation.Of(saved)+" is gone")
		} else if at := differs(content(saved), content(live), ""); at != "" {
			stale = append(stale, installation.Of(saved)+": "+at)
		}
	}

	return stale, nil
}

// content returns the part of an object that neither the cluster nor the other manager itself writes.
func content(object *unstructured.Unstructured) map[string]any {
	copied := object.DeepCopy()
	for _, field := range []string{"metadata", "status"} {
		delete(copied.Object, field)
	}
	unstructured.RemoveNestedField(copied.Object, "spec", "conversion")
	for _, entry := range installation.Entries(copied) {
		delete(entry, "clientConfig")
		delete(entry, "failurePolicy") // may be the first change of an earlier run
	}
	return copied.Object
}

// differs returns the path of the first field in which two documents differ, or nothing if they are equal.
func differs(a, b any, path string) string {
	if equality.Semantic.DeepEqual(a, b) {
		return ""
	}

	first, is := a.(map[string]any)
	second, are := b.(map[string]any)
	if !is || !are {
		return strings.TrimPrefix(path, ".")
	}

	for _, key := range slices.Sorted(maps.Keys(merged(first, second))) {
		if at := differs(first[key], second[key], path+"."+key); at != "" {
			return at
		}
	}

	return ""
}

// file returns the name of the file of an object.
func (r reference) file() string {
	parts := []string{strings.ToLower(r.Kind), r.Namespace, strings.ReplaceAll(r.Name, ":", "-")}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "_") + ".yaml"
}

// save writes what will be replaced or removed into the folder, unless the folder has a backup already.
func (t *takeover) save(ctx context.Context, s *seen) error {
	if saved, err := readBackup(t.backup); err != nil || saved != nil {
		if saved != nil && saved.Namespace != t.choice.Namespace {
			return fmt.Errorf("the backup in %s is of namespace %s, not %s", t.backup, saved.Namespace,
				t.choice.Namespace)
		}
		t.say("kept: %s", t.backup)
		return err
	}

	if err := os.MkdirAll(t.backup, 0o700); err != nil {
		return fmt.Errorf("making the folder of the backup: %w", err)
	}

	uid, err := t.clusterUID(ctx)
	if err != nil {
		return err
	}

	b := contents{Cluster: t.cluster, ClusterUID: uid, Namespace: t.choice.Namespace, Unserved: s.refusals,
		Used: s.used}
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
		live, err := installation.Get(ctx, t.client, wanted.GroupVersionKind(), wanted.GetNamespace(),
			wanted.GetName())
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

	extra, narrowed, err := t.superfluous(ctx)
	if err != nil {
		return err
	}

	for _, object := range extra {
		b.Removed = append(b.Removed, referenceTo(object))
		if err := keep(object); err != nil {
			return err
		}
	}

	for _, object := range narrowed {
		b.Narrowed = append(b.Narrowed, referenceTo(object))
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

	t.say("%s and the state of %s in %s", wording.Count(len(b.Saved), "object"),
		wording.Count(len(b.Pods), "pod"), t.backup)
	return nil
}

// write writes the index file.
func (c *contents) write(folder string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the index of the backup: %w", err)
	}
	return write(filepath.Join(folder, index), text)
}

// saveSecret records that there was a Secret, but not its data. The Secret stays where it is and is not
// restored.
func (t *takeover) saveSecret(ctx context.Context) error {
	secret, err := installation.Get(ctx, t.client, installation.Secrets, t.choice.Namespace,
		installation.Secret)
	if secret == nil {
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}

	metadata := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": secret.Object["metadata"]}
	unstructured.RemoveNestedField(metadata, "metadata", "annotations",
		"kubectl.kubernetes.io/last-applied-configuration")
	text, err := yaml.Marshal(metadata)
	if err != nil {
		return fmt.Errorf("encoding the Secret: %w", err)
	}

	return write(filepath.Join(t.backup, "secret-without-data.yaml"), text)
}

// write atomically creates a file that only the user can read.
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

// superfluous returns the permissions of the other manager that the manifests do not grant: the bindings
// kruise-... of its accounts, and the roles kruise-... that are then bound to nobody. Bindings with other
// subjects as well are returned in narrowed, since only the accounts are removed from them. Bindings with
// other names belong to the users, such as those for custom workloads.
func (t *takeover) superfluous(ctx context.Context) (
	extra, narrowed []*unstructured.Unstructured, err error) {
	have := map[reference]bool{}
	for _, object := range t.manifests {
		have[referenceTo(object)] = true
	}

	goes := func(object *unstructured.Unstructured) bool {
		return strings.HasPrefix(object.GetName(), "kruise-") && !have[referenceTo(object)]
	}

	// bound are the roles that are still bound after the bindings are removed.
	bound := map[reference]bool{}
	var roles []reference
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		if err := installation.Each(ctx, t.client, rbac(kind),
			func(binding *unstructured.Unstructured) error {
				role := roleOf(binding)
				subjects := installation.Maps(binding.Object, "subjects")
				ours := slices.ContainsFunc(subjects, t.isAccount)
				others := slices.ContainsFunc(subjects,
					func(s map[string]any) bool { return !t.isAccount(s) })
				switch {
				case !ours || !goes(binding):
					bound[role] = bound[role] || len(subjects) > 0
				case others:
					bound[role] = true
					narrowed = append(narrowed, binding.DeepCopy())
				default:
					extra, roles = append(extra, binding.DeepCopy()), append(roles, role)
				}
				return nil
			}); err != nil {
			return nil, nil, err
		}
	}

	for i, r := range roles {
		if bound[r] || slices.Contains(roles[:i], r) {
			continue
		}
		role, err := t.get(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		if role != nil && goes(role) && !aggregated(role) {
			extra = append(extra, role)
		}
	}

	return extra, narrowed, nil
}

func rbac(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: kind}
}

// roleOf returns the role of a binding.
func roleOf(binding *unstructured.Unstructured) reference {
	kind, namespace := installation.Text(binding.Object, "roleRef", "kind"), binding.GetNamespace()
	if kind == "ClusterRole" {
		namespace = ""
	}
	return reference{rbac(kind).GroupVersion().String(), kind, namespace,
		installation.Text(binding.Object, "roleRef", "name")}
}

// aggregated reports whether a role is aggregated into other roles, such as view.
func aggregated(role *unstructured.Unstructured) bool {
	for label := range role.GetLabels() {
		if strings.Contains(label, "aggregate-to-") {
			return true
		}
	}
	return false
}

// narrow removes the accounts of the installation from a binding that has other subjects.
func (t *takeover) narrow(ctx context.Context, r reference) error {
	if err := t.edit(ctx, r, func(binding *unstructured.Unstructured) error {
		var others []any
		for _, subject := range installation.Maps(binding.Object, "subjects") {
			if !t.isAccount(subject) {
				others = append(others, subject)
			}
		}
		return unstructured.SetNestedSlice(binding.Object, others, "subjects")
	}); err != nil {
		return fmt.Errorf("taking the other manager out of %s %s: %w", r.Kind, r.Name, err)
	}
	return nil
}

// keepPeople adds the subjects that were bound meanwhile to a binding that is restored.
func (t *takeover) keepPeople(live, wanted *unstructured.Unstructured) {
	if live == nil || !slices.Contains([]string{"ClusterRoleBinding", "RoleBinding"}, wanted.GetKind()) {
		return
	}

	subjects, _, _ := unstructured.NestedSlice(wanted.Object, "subjects")
	for _, subject := range installation.Maps(live.Object, "subjects") {
		if !t.isAccount(subject) &&
			!slices.ContainsFunc(subjects, func(has any) bool {
				return equality.Semantic.DeepEqual(has, subject)
			}) {
			subjects = append(subjects, subject)
		}
	}

	if len(subjects) > 0 {
		_ = unstructured.SetNestedSlice(wanted.Object, subjects, "subjects")
	}
}

// isAccount reports whether the subject of a binding is the account of a manager or a node daemon.
func (t *takeover) isAccount(subject map[string]any) bool {
	name, _ := subject["name"].(string)
	return subject["namespace"] == t.choice.Namespace && (name == "kruise-manager" || name == "kruise-daemon")
}

// get reads the current state of an object of the backup or the manifests.
func (t *takeover) get(ctx context.Context, r reference) (*unstructured.Unstructured, error) {
	return installation.Get(ctx, t.client, r.kind(), r.Namespace, r.Name)
}

// remove deletes an object if it exists.
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
