// Package scaledown implements the command that removes given pods from a workload for good (OPS-166).
package scaledown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/pods"
)

const group = "apps.kruise.io"

// command holds the flags of the command.
type command struct {
	cmdutil.Factory
	genericiooptions.IOStreams
	flags *change.Flags
	names []string
}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	c := &command{Factory: f, IOStreams: streams, flags: change.NewFlags("scaled down")}
	cmd := &cobra.Command{
		Use:                   "scaledown (TYPE NAME | TYPE/NAME) --pods=POD,POD...",
		DisableFlagsInUseLine: true,

		Short: "Remove certain pods of a CloneSet or StatefulSet, and scale it down by as many",
		Long: templates.LongDesc(`
			Remove certain pods of a workload, and lower its replicas by their number, in one write: no others go, and none comes in their
			place. The pods go as their workload deletes pods, with its hooks. Of a StatefulSet of apps.kruise.io the ordinals of these
			pods are reserved as far as higher ones stay, and the pods get the label apps.kruise.io/specified-delete.`),
		Example: templates.Examples(`
			# Remove two pods of a CloneSet
			kubectl afloat scaledown cloneset/web --pods=web-x7h2k,web-9zq7d

			# Show what would be written
			kubectl afloat scaledown asts/ledger --pods=ledger-1 --dry-run=server -o yaml`),
		ValidArgsFunction: completion.SpecifiedResourceTypeAndNameCompletionFunc(f,
			[]string{"cloneset", "asts"}),
		RunE: c.run,
	}
	cmd.Flags().StringSliceVar(&c.names, "pods", nil, "The names of the pods.")
	c.flags.Add(cmd)
	return cmd
}

func (c *command) run(cmd *cobra.Command, args []string) error {
	var names []string
	for _, name := range c.names {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return cmdutil.UsageErrorf(cmd, "--pods must name at least one pod")
	}

	o, printer, err := c.flags.Options(cmd)
	if err != nil {
		return err
	}

	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}

	infos, err := c.NewBuilder().Unstructured().
		NamespaceParam(namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, args...).
		Latest().Flatten().Do().Infos()
	if err != nil {
		return err
	}
	if len(infos) != 1 {
		return cmdutil.UsageErrorf(cmd, "exactly one workload is required, got %d", len(infos))
	}

	var lowered func(*unstructured.Unstructured, []string) error
	kind := infos[0].Mapping.GroupVersionKind
	switch kind.GroupKind() {
	case schema.GroupKind{Group: group, Kind: "CloneSet"}:
		lowered = cloneSet
	case schema.GroupKind{Group: group, Kind: "StatefulSet"}:
		lowered = statefulSet
	default:
		return fmt.Errorf(
			"%s is a %s, which cannot say which of its pods go: only a CloneSet and a StatefulSet of %s can",
			infos[0].ObjectName(), kind.GroupKind(), group)
	}

	changed, err := change.Apply(cmd.Context(), infos[0], o, func(document *unstructured.Unstructured) error {
		// Check the pods on each attempt: after a conflict one of them may already be on its way out.
		if err := c.check(cmd.Context(), infos[0], document, names); err != nil {
			return err
		}
		return lowered(document, names)
	})
	if err != nil {
		return err
	}

	if !changed && !c.flags.Print.OutputFlagSpecified() {
		fmt.Fprintf(c.Out, "%s unchanged: it is to delete these pods already\n", change.Name(infos[0]))
		return nil
	}

	if err := printer.PrintObj(infos[0].Object, c.Out); err != nil {
		return err
	}

	if kind.Kind == "CloneSet" {
		return nil
	}

	return c.label(cmd.Context(), names, namespace, o)
}

// check returns an error for each name that is not a pod of the workload that can be removed.
func (c *command) check(
	ctx context.Context, info *resource.Info, document *unstructured.Unstructured, names []string,
) error {
	own, err := pods.Of(ctx, c, document)
	if err != nil {
		return err
	}

	var errs []error
	for _, name := range names {
		at := slices.IndexFunc(own, func(pod corev1.Pod) bool { return pod.Name == name })
		switch {
		case at < 0:
			errs = append(errs, fmt.Errorf("%s has no pod %s", info.ObjectName(), name))
		case own[at].DeletionTimestamp != nil:
			errs = append(errs, fmt.Errorf("pod %s is being deleted already", name))
		case document.GetKind() == "CloneSet":
			errs = append(errs, goes(&own[at], document))
		}
	}

	return errors.Join(errs...)
}

// goes returns an error if a pod of a CloneSet goes anyway without being named in podsToDelete, or does not
// count as a replica. Lower replicas would then remove another pod, which nobody has named. Pods that are
// listed already are accepted, because the replicas have been lowered for them. A StatefulSet needs no such
// check, because its ordinals define which pods go.
func goes(pod *corev1.Pod, document *unstructured.Unstructured) error {
	listed, _, _ := unstructured.NestedStringSlice(document.Object, "spec", "scaleStrategy", "podsToDelete")
	_, marked := pod.Labels[pub.SpecifiedDelete]
	why := ""

	switch {
	case slices.Contains(listed, pod.Name):
	case !pods.Active(pod):
		why = fmt.Sprintf("is at its end (%s), and counts no more: delete it", pod.Status.Phase)
	case marked:
		why = fmt.Sprintf("goes already: it has the label %s", pub.SpecifiedDelete)
	case pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingDelete):
		why = "goes already: its preDelete hook holds it"
	}

	if why == "" {
		return nil
	}
	return fmt.Errorf(
		"pod %s %s; nothing was done, since with lower replicas another pod would go too (kubectl scale lowers them)",
		pod.Name, why)
}

// lower reduces the replicas of a workload.
func lower(document *unstructured.Unstructured, by int64) error {
	replicas, ok, err := unstructured.NestedInt64(document.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	if !ok {
		replicas = 1
	}

	if replicas < by {
		return fmt.Errorf("%s has %d replicas, which cannot be lowered by %d",
			document.GetName(), replicas, by)
	}

	return unstructured.SetNestedField(document.Object, replicas-by, "spec", "replicas")
}

// cloneSet makes a CloneSet delete the pods. Pods that it lists for deletion already do not count again.
func cloneSet(document *unstructured.Unstructured, names []string) error {
	listed, _, err := unstructured.NestedStringSlice(document.Object, "spec", "scaleStrategy", "podsToDelete")
	if err != nil {
		return err
	}

	before := len(listed)
	for _, name := range names {
		if !slices.Contains(listed, name) {
			listed = append(listed, name)
		}
	}

	if len(listed) == before {
		return nil
	}

	if err := lower(document, int64(len(listed)-before)); err != nil {
		return err
	}

	return unstructured.SetNestedStringSlice(document.Object, listed, "spec", "scaleStrategy", "podsToDelete")
}

// statefulSet makes a StatefulSet do without the ordinals of the pods. It reserves these ordinals, except
// those above all ordinals that stay, which go with the lower replicas.
func statefulSet(document *unstructured.Unstructured, names []string) error {
	before, reserved, err := slots(document)
	if err != nil {
		return err
	}

	var ordinals []int64
	for _, name := range names {
		text, _ := strings.CutPrefix(name, document.GetName()+"-")
		ordinal, err := strconv.ParseInt(text, 10, 32)
		if err != nil || !before.Has(int32(ordinal)) {
			return fmt.Errorf("pod %s goes already: %s wants no pod of that ordinal",
				name, document.GetName())
		}
		ordinals = append(ordinals, ordinal)
	}

	if err := lower(document, int64(len(ordinals))); err != nil {
		return err
	}

	slices.Sort(ordinals)
	all := slices.Clone(reserved)
	for _, ordinal := range ordinals {
		all = append(all, ordinal)
	}

	if err := unstructured.SetNestedSlice(document.Object, all, "spec", "reserveOrdinals"); err != nil {
		return err
	}

	after, _, err := slots(document)
	if err != nil {
		return err
	}

	highest, ok := after.Nth(after.Len() - 1)
	needed := slices.IndexFunc(ordinals, func(o int64) bool { return !ok || o > int64(highest) })
	if needed < 0 {
		needed = len(ordinals)
	}

	switch all = all[:len(reserved)+needed]; {
	case len(all) == 0:
		unstructured.RemoveNestedField(document.Object, "spec", "reserveOrdinals")
	case needed > 0 && document.GroupVersionKind().Version == "v1alpha1":
		return fmt.Errorf(
			"only the pods with the highest ordinals can be removed from %s: v1alpha1 has no reserveOrdinals",
			document.GetName())
	default:
		return unstructured.SetNestedSlice(document.Object, all, "spec", "reserveOrdinals")
	}

	return nil
}

// slots returns the ordinals for which a StatefulSet wants pods, and its reserved ordinals.
func slots(document *unstructured.Unstructured) (statefulset.Slots, []any, error) {
	part := map[string]any{}
	for _, name := range []string{"replicas", "reserveOrdinals", "ordinals"} {
		if value, ok, _ := unstructured.NestedFieldCopy(document.Object, "spec", name); ok {
			part[name] = value
		}
	}

	spec := appsv1beta1.StatefulSetSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(part, &spec); err != nil {
		return statefulset.Slots{}, nil, fmt.Errorf("reading the ordinals of %s: %w", document.GetName(), err)
	}

	if spec.Replicas == nil {
		one := int32(1)
		spec.Replicas = &one
	}

	found, err := statefulset.SlotsOf(&spec, true)
	reserved, _ := part["reserveOrdinals"].([]any)
	return found, reserved, err
}

// label marks the pods for deletion.
func (c *command) label(ctx context.Context, names []string, namespace string, o change.Options) error {
	return c.NewBuilder().Unstructured().ContinueOnError().
		NamespaceParam(namespace).
		ResourceNames("pods", names...).
		Flatten().Do().
		Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}

			_, err = change.Apply(ctx, info, o, func(pod *unstructured.Unstructured) error {
				return unstructured.SetNestedField(pod.Object, "true",
					"metadata", "labels", pub.SpecifiedDelete)
			})
			if err != nil {
				return fmt.Errorf("the ordinal of pod %s is given up, but the pod is not marked: %w",
					info.Name, err)
			}
			return nil
		})
}
