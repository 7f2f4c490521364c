package takeover

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// owner is the field manager that applies the manifests.
const owner = "kubectl-afloat"

// order lists the kinds in the order in which they are applied: what a manager needs comes before the
// manager. Kinds that are not listed are applied together with the definitions, in the place of the empty
// string.
var order = []string{"Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding",
	"RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "", "Service",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "PodDisruptionBudget", "Deployment",
	"DaemonSet"}

func rank(object *unstructured.Unstructured) int {
	if at := slices.Index(order, object.GetKind()); at >= 0 {
		return at
	}
	return slices.Index(order, "")
}

// byRank calls do for objects that are sorted by rank. Objects of the same rank are handled in parallel,
// because no manager acts meanwhile and every second counts.
func byRank(ctx context.Context, objects []*unstructured.Unstructured,
	do func(context.Context, *unstructured.Unstructured) error) error {
	for len(objects) > 0 {
		n := slices.IndexFunc(objects,
			func(o *unstructured.Unstructured) bool { return rank(o) != rank(objects[0]) })
		if n < 0 {
			n = len(objects)
		}
		if err := together(ctx, objects[:n], do); err != nil {
			return err
		}
		objects = objects[n:]
	}
	return nil
}

// together calls do for all items, several at a time. The first error cancels the other calls.
func together[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, item := range items {
		group.Go(func() error { return do(ctx, item) })
	}
	return group.Wait() //nolint:wrapcheck // the caller's own
}

// prepare completes the manifests for this cluster.
func (t *takeover) prepare(s *seen) error {
	manager := installation.Find(t.manifests, installation.Deployments.Kind, installation.Manager)
	daemon := installation.Find(t.manifests, installation.DaemonSets.Kind, installation.Daemon)
	for _, workload := range []*unstructured.Unstructured{manager, daemon} {
		if workload == nil {
			continue
		}
		labels := workload.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[installation.PartOf] = installation.Project
		workload.SetLabels(labels)
	}

	annotations := manager.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[backupAnnotation] = t.backup
	manager.SetAnnotations(annotations)
	slices.SortStableFunc(t.manifests,
		func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a), rank(b)) })

	return t.carryInto(s, t.manifests)
}

// applyAll replaces the existing objects by the manifests, and waits until the manager and node daemons are
// ready.
func (t *takeover) applyAll(ctx context.Context, s *seen) error {
	saved, err := readBackup(t.backup)
	if err != nil {
		return err
	}

	daemons := slices.IndexFunc(t.manifests,
		func(o *unstructured.Unstructured) bool { return o.GetKind() == installation.DaemonSets.Kind })
	if daemons < 0 {
		daemons = len(t.manifests)
	}
	if err := t.unconvert(ctx, s); err != nil {
		return err
	}

	wanted, webhooks := slices.Clone(t.manifests[:daemons]), []*unstructured.Unstructured(nil)
	for i, object := range wanted {
		// Webhook configurations come into force once a manager answers.
		if isConfiguration(object) {
			wanted[i], webhooks = object.DeepCopy(), append(webhooks, object)
			lenient(wanted[i])
		}
	}

	if err := byRank(ctx, wanted, t.put); err != nil {
		return err
	}
	if err := together(ctx, saved.Removed, t.remove); err != nil {
		return err
	}
	if err := together(ctx, saved.Narrowed, t.narrow); err != nil {
		return err
	}

	t.say("applied: %s; removed: %s", wording.Count(daemons, "object"),
		wording.Count(len(saved.Removed), "object"))
	if err := t.serves(ctx, t.choice.Namespace); err != nil {
		return err
	}

	// From here on, what the manager has set itself stays, such as the address at which it is called.
	t.taken = true
	if err := t.strict(ctx, func() error {
		for _, object := range webhooks {
			if err := t.put(ctx, object); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}

	for _, object := range t.manifests[daemons:] {
		if err := t.put(ctx, object); err != nil {
			return err
		}
		// This is no error, as in an installation: a node without a runtime never has a ready daemon.
		if err := t.ready(ctx, referenceTo(object)); err != nil {
			t.say("the node daemons are not all ready: %v", err)
		}
	}

	return nil
}

// unconvert sets the conversion of kinds that the project does not serve to None. Nobody would answer for
// them, and a manager that finds such a definition does not become ready.
func (t *takeover) unconvert(ctx context.Context, s *seen) error {
	for _, kind := range s.kinds {
		if kind.served ||
			installation.Text(kind.definition.Object, "spec", "conversion", "strategy") != "Webhook" {
			continue
		}
		if err := t.edit(ctx, referenceTo(kind.definition),
			func(definition *unstructured.Unstructured) error {
				return unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"},
					"spec", "conversion")
			}); err != nil {
			return fmt.Errorf("ending the conversion of %s: %w", kind.definition.GetName(), err)
		}
		t.say("%s is not converted any more: use one version of it only", kind.definition.GetName())
	}

	return nil
}

// replaced lists the kinds that are deleted and created again if an immutable field differs. No pods of users
// depend on them.
var replaced = []string{"ClusterRoleBinding", "RoleBinding", "Deployment", "DaemonSet", "Service"}

// put applies an object, and removes fields of other owners that it does not have. It applies the manager
// only where the other manager does not run any more, and not if somebody writes the Deployment at the same
// time.
func (t *takeover) put(ctx context.Context, object *unstructured.Unstructured) error {
	if referenceTo(object) != t.managerReference() {
		return t.putOnce(ctx, object)
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return t.putOnce(ctx, object) })
}

func (t *takeover) putOnce(ctx context.Context, object *unstructured.Unstructured) error {
	wanted := object.DeepCopy()
	var live *unstructured.Unstructured
	owned, manager := false, referenceTo(object) == t.managerReference()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if live, err = t.get(ctx, referenceTo(object)); err != nil || live == nil {
			return err
		}
		if manager {
			if err := t.healed(ctx, live); err != nil {
				return err
			}
		}
		owned = owned || t.owns(live) && t.taken
		return t.adopt(ctx, live)
	})

	if err != nil {
		return fmt.Errorf("taking over the fields of %s: %w", installation.Of(object), err)
	}
	if owned {
		keepTargets(live, wanted)
	}
	if manager && live != nil {
		wanted.SetResourceVersion(live.GetResourceVersion())
	}

	keepBundles(live, wanted)
	keepLabels(live, wanted)
	err = t.apply(ctx, wanted, client.ForceOwnership)
	if apierrors.IsInvalid(err) && live != nil && slices.Contains(replaced, object.GetKind()) {
		if err := t.remove(ctx, referenceTo(object)); err != nil {
			return err
		}
		wanted.SetResourceVersion("")
		err = t.apply(ctx, wanted, client.ForceOwnership)
	}

	if err != nil {
		return fmt.Errorf("applying %s: %w", installation.Of(object), err)
	}

	return nil
}

func (t *takeover) apply(ctx context.Context, object *unstructured.Unstructured,
	options ...client.ApplyOption) error {
	// The answer is written into a copy, because the answer to a dry run has a UID that never exists.
	return t.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), append(options,
		client.FieldOwner(t.fieldManager))...) //nolint:wrapcheck // the caller says what
}

// shared lists the kinds in which the fields of other owners are kept.
var shared = []string{"Namespace", "ServiceAccount"}

// owns reports whether this command has applied an object.
func (t *takeover) owns(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == t.fieldManager && e.Operation == metav1.ManagedFieldsOperationApply
	})
}

// adopt makes this command the owner of the fields of an object, so that applying removes those that the
// manifests do not have. Labels and annotations of others stay. An object is adopted only once: what the
// manager adds later belongs to the manager.
func (t *takeover) adopt(ctx context.Context, live *unstructured.Unstructured) error {
	fields := live.GetManagedFields()
	if slices.Contains(shared, live.GetKind()) || t.owns(live) {
		return nil
	}

	all := fieldpath.NewSet()
	kept := fields[:0:0]
	for _, entry := range fields {
		if entry.Subresource != "" || entry.FieldsV1 == nil || entry.Manager == "kube-controller-manager" {
			kept = append(kept, entry)
			continue
		}
		var set fieldpath.Set
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return fmt.Errorf("reading the fields of %s: %w", entry.Manager, err)
		}
		set.Iterate(func(path fieldpath.Path) {
			if text := path.String(); !strings.HasPrefix(text, ".metadata") ||
				text == ".metadata.annotations.template" {
				all.Insert(path.Copy())
			}
		})
	}

	if all.Empty() {
		return nil
	}

	raw, err := all.ToJSON()
	if err != nil {
		return fmt.Errorf("encoding fields: %w", err)
	}

	mine := metav1.ManagedFieldsEntry{Manager: t.fieldManager, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: live.GetAPIVersion(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)), Time: &metav1.Time{Time: t.now()}}
	body, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": append(kept, mine)}})
	if err != nil {
		return fmt.Errorf("encoding fields: %w", err)
	}

	return t.client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, body),
		client.FieldOwner(t.fieldManager)) //nolint:wrapcheck // the caller says what
}

// keepBundles copies the CA bundles in force into the object to be applied, so that calls never fail for lack
// of one. The manager corrects them if they change.
func keepBundles(live, wanted *unstructured.Unstructured) {
	if live == nil {
		return
	}

	conversion := []string{"spec", "conversion", "webhook", "clientConfig", "caBundle"}
	if bundle := installation.Text(live.Object, conversion...); bundle != "" &&
		installation.Text(wanted.Object, "spec", "conversion", "strategy") == "Webhook" {
		_ = unstructured.SetNestedField(wanted.Object, bundle, conversion...)
	}

	bundle := ""
	for _, entry := range installation.Entries(live) {
		bundle = cmp.Or(bundle, installation.Text(entry, "clientConfig", "caBundle"))
	}

	for _, entry := range installation.Entries(wanted) {
		if config, ok := entry["clientConfig"].(map[string]any); ok && bundle != "" {
			config["caBundle"] = bundle
		}
	}
}

// joinBundles adds the CA bundles in force to those that were saved, so that any certificate that the other
// manager may serve is trusted until that manager corrects the bundles.
func joinBundles(live, wanted *unstructured.Unstructured) {
	saved := wanted.DeepCopy()
	keepBundles(live, wanted)
	join := func(a, b map[string]any) {
		first, err := base64.StdEncoding.DecodeString(installation.Text(a, "caBundle"))
		second, also := base64.StdEncoding.DecodeString(installation.Text(b, "caBundle"))
		if err == nil && also == nil && len(first) > 0 && !bytes.Contains(second, bytes.TrimSpace(first)) {
			b["caBundle"] = base64.StdEncoding.EncodeToString(append(append(bytes.TrimSpace(first), '\n'),
				second...))
		}
	}

	config := func(object map[string]any, path ...string) map[string]any {
		value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
		m, _ := value.(map[string]any)
		return m
	}

	if target := []string{"spec", "conversion", "webhook", "clientConfig"}; config(wanted.Object,
		target...) != nil {
		join(config(saved.Object, target...), config(wanted.Object, target...))
	}

	for i, entry := range installation.Entries(saved) {
		join(config(entry, "clientConfig"), config(installation.Entries(wanted)[i], "clientConfig"))
	}
}

// keepLabels keeps the labels and annotations of a namespace for which the manifests have another value. The
// webhooks of the other manager select by them, and without them they would be called for the manager's own
// pods. Labels of Pod Security are always set.
func keepLabels(live, wanted *unstructured.Unstructured) {
	if live == nil || wanted.GetKind() != "Namespace" {
		return
	}

	keep := func(live, wanted map[string]string) map[string]string {
		for key, value := range live {
			if wanted[key] != value && !strings.HasPrefix(key, "pod-security.kubernetes.io/") {
				delete(wanted, key)
			}
		}
		return wanted
	}

	wanted.SetLabels(keep(live.GetLabels(), wanted.GetLabels()))
	wanted.SetAnnotations(keep(live.GetAnnotations(), wanted.GetAnnotations()))
}

// keepTargets copies where the manager of the project is called if the manager has set that itself: one
// outside the cluster is called by URL.
func keepTargets(live, wanted *unstructured.Unstructured) {
	target := []string{"spec", "conversion", "webhook", "clientConfig"}
	if config, has, _ := unstructured.NestedMap(live.Object, target...); has &&
		installation.Text(config, "url") != "" {
		_ = unstructured.SetNestedMap(wanted.Object, config, target...)
	}

	configs := map[string]any{}
	for _, entry := range installation.Entries(live) {
		if installation.Text(entry, "clientConfig", "url") != "" {
			configs[installation.Text(entry, "name")] = entry["clientConfig"]
		}
	}

	for _, entry := range installation.Entries(wanted) {
		if config, has := configs[installation.Text(entry, "name")]; has {
			entry["clientConfig"] = config
		}
	}
}

// ready waits for all replicas of a workload, or all pods of a DaemonSet.
func (t *takeover) ready(ctx context.Context, r reference) error {
	return t.replicas(ctx, r, math.MaxInt64)
}

// replicas waits until the given number of pods of a workload is ready, or all of them if it has fewer.
func (t *takeover) replicas(ctx context.Context, r reference, most int64) error {
	return t.wait(ctx, r.Kind+" "+r.Name, func(ctx context.Context) (string, error) {
		workload, err := t.get(ctx, r)
		if err != nil || workload == nil {
			return "it is not there", err
		}
		if err := t.displaced(workload); err != nil {
			return "", err
		}

		number := func(fields ...string) int64 {
			n, _, _ := unstructured.NestedInt64(workload.Object, fields...)
			return n
		}

		wanted, updated, ready := number("spec", "replicas"), number("status", "updatedReplicas"),
			number("status", "readyReplicas")
		if r.Kind == installation.DaemonSets.Kind {
			wanted, updated, ready = number("status", "desiredNumberScheduled"),
				number("status", "updatedNumberScheduled"),
				number("status", "numberReady")
		}

		if workload.GetGeneration() <= number("status", "observedGeneration") &&
			updated >= min(wanted, most) && ready >= min(wanted, most) {
			return "", nil
		}

		text := fmt.Sprintf("%d of %d ready", ready, wanted)
		if why := t.obstacles(ctx, workload); why != "" {
			text += ": " + why
		}

		return text, nil
	})
}

// obstacles returns why containers of a workload's pods do not run.
func (t *takeover) obstacles(ctx context.Context, workload *unstructured.Unstructured) string {
	selector, err := selectorOf(workload)
	if err != nil {
		return ""
	}

	var found []string
	_ = installation.Each(ctx, t.client, installation.Pods, func(pod *unstructured.Unstructured) error {
		for _, status := range installation.Maps(pod.Object, "status", "containerStatuses") {
			if reason := installation.Text(status, "state", "waiting", "reason"); reason != "" &&
				reason != "ContainerCreating" {
				found = append(found,
					pod.GetName()+" "+reason+" "+installation.Text(status, "state", "waiting", "message"))
			}
		}
		return nil
	}, client.InNamespace(workload.GetNamespace()), client.MatchingLabelsSelector{Selector: selector})

	return most(found)
}
