package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

// trackers lists the labels and annotations by which tools recognize the objects that they manage. A tool
// prunes an object that has them without being in its manifests, and Helm's make the next install or upgrade
// fail.
var trackers = []string{"app.kubernetes.io/instance", "argocd.argoproj.io/instance",
	"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/installation-id",
	"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace",
	"helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace", "meta.helm.sh/release-name",
	"meta.helm.sh/release-namespace", "applyset.kubernetes.io/part-of", "config.k8s.io/owning-inventory",
	"kapp.k14s.io/app", "kapp.k14s.io/association", "kapp.k14s.io/identity", "kapp.k14s.io/original",
	"kapp.k14s.io/original-diff-md5", "objectset.rio.cattle.io/applied", "objectset.rio.cattle.io/hash",
	"objectset.rio.cattle.io/id", "objectset.rio.cattle.io/owner-gvk", "objectset.rio.cattle.io/owner-name",
	"objectset.rio.cattle.io/owner-namespace"}

// tracked reports whether a label or an annotation belongs to such a tool.
func tracked(key, value string) bool {
	return slices.Contains(trackers, key) || key == "app.kubernetes.io/managed-by" && value == "Helm"
}

// referrer is a kind whose objects name a workload in the given field. If fixed, that field is immutable.
type referrer struct {
	schema.GroupKind
	field string
	fixed bool
}

// referrers lists the kinds that act on the workload that they name, in clusters that have them.
var referrers = []referrer{
	{schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, "scaleTargetRef", false},
	{schema.GroupKind{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"}, "targetRef", false},
	{schema.GroupKind{Group: "keda.sh", Kind: "ScaledObject"}, "scaleTargetRef", false},
	{schema.GroupKind{Group: "policy.kruise.io", Kind: "PodUnavailableBudget"}, "targetRef", true},
	{schema.GroupKind{Group: ownGroup, Kind: "WorkloadSpread"}, "targetRef", true},
	{schema.GroupKind{Group: ownGroup, Kind: "PersistentPodState"}, "targetRef", true},
	{schema.GroupKind{Group: "rollouts.kruise.io", Kind: "Rollout"}, "workloadRef", false},
}

// warn prints who else acts on the source, and what the target does not inherit. Even a correct migration
// ends with two sets of pods, or with none, if such a tool continues unchanged.
func (c *command) warn(ctx context.Context, source, target *side) error {
	say := func(format string, a ...any) { fmt.Fprintf(c.ErrOut, "Warning: "+format+"\n", a...) }
	var keys []string
	for _, fields := range []map[string]string{source.object.GetLabels(), source.object.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if tracked(key, fields[key]) {
				keys = append(keys, key)
			}
		}
	}

	if len(keys) > 0 {
		say("%s seems to be kept by a tool such as Argo CD, Flux or Helm (%s): pause the tool, and give it the manifest of %s, else it makes the old "+
			"one anew; %[3]s does not get these labels and annotations, by which it would be pruned",
			source, strings.Join(keys, ", "), target)
	}

	for _, owner := range source.object.GetOwnerReferences() {
		say("%s belongs to %s %s, which may change it back; %s will belong to nobody", source, owner.Kind,
			owner.Name, target)
	}

	for _, kind := range referrers {
		names, err := c.naming(ctx, kind, source)
		switch {
		case apierrors.IsForbidden(err):
			say("you may not list objects of kind %s, which may name %s", kind.Kind, source)
		case err != nil:
			return err
		case len(names) > 0 && kind.fixed:
			say("%s %s names %s for good: once %s has the pods, delete it and make one that names that",
				kind.Kind, strings.Join(names, ", "), source, target)
		case len(names) > 0:
			say("%s %s names %s: let it name %s once that has the pods, and take autoscalers off meanwhile",
				kind.Kind, strings.Join(names, ", "), source, target)
		}
	}

	return nil
}

// naming returns the names of the objects of a kind that name the workload, or none if the server does not
// have the kind.
func (c *command) naming(ctx context.Context, kind referrer, workload *side) ([]string, error) {
	mapping, err := change.Mapping(c, kind.GroupKind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}

	client, err := c.DynamicClient()
	if err != nil {
		return nil, err
	}

	all, err := client.Resource(mapping.Resource).Namespace(workload.namespace).List(ctx,
		metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}

	var names []string
	for i := range all.Items {
		reference, _, _ := unstructured.NestedStringMap(all.Items[i].Object, "spec", kind.field)
		gv, err := schema.ParseGroupVersion(reference["apiVersion"])
		if group := workload.mapping.GroupVersionKind.Group; err == nil &&
			reference["kind"] == workload.mapping.GroupVersionKind.Kind &&
			reference["name"] == workload.name &&
			(gv.Group == group || reference["apiVersion"] == "" && group == nativeGroup) {
			names = append(names, all.Items[i].GetName())
		}
	}

	return names, nil
}
