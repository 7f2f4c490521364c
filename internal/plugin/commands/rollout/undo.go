package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// undo restores an earlier pod template.
type undo struct {
	workload.Selection
	change  *change.Command
	to      int64
	fast    bool
	factory cmdutil.Factory
	genericiooptions.IOStreams
}

func newUndo(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	u := &undo{change: change.NewCommand("rolled back", streams), factory: f, IOStreams: streams}
	cmd := &cobra.Command{
		Use:                   "undo (TYPE NAME | TYPE/NAME) [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Go back to an earlier revision",
		Long: templates.LongDesc(`
			Go back to an earlier revision of a workload's pod template, by default to the one before the latest.

			The template becomes exactly what it was: fields that were added since go. If it mounts volumes of claim templates that a CloneSet has
			no more,
			these come back too, as far as the revision remembers them. Undoing a Rollout of rollouts.kruise.io undoes its workload.`),
		Example: templates.Examples(`
			# Go back to the revision before
			kubectl afloat rollout undo cloneset/web

			# Go back to the third revision
			kubectl afloat rollout undo asts/db --to-revision=3

			# Show the pod template that would be restored
			kubectl afloat rollout undo ads/agent --dry-run=client`),
		ValidArgsFunction: completion.SpecifiedResourceTypeAndNameCompletionFunc(f, versioned),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := u.change.Complete(cmd); err != nil {
				return err
			}
			if u.to < 0 {
				return fmt.Errorf("unable to find the specified revision %d: revisions are positive", u.to)
			}

			infos, err := u.Infos(f, args)
			var failed []error
			if err != nil {
				failed = append(failed, err)
			}

			for _, info := range infos {
				if err := u.one(cmd.Context(), info); err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", change.Name(info), err))
				}
			}
			return utilerrors.NewAggregate(failed)
		},
	}

	u.AddFlags(cmd)
	u.change.AddFlags(cmd)
	cmd.Flags().Int64Var(&u.to, "to-revision", 0,
		"The revision to rollback to. Default to 0 (last revision).")
	cmd.Flags().BoolVar(&u.fast, "fast", false,
		"Of a Rollout of rollouts.kruise.io: do not wait at the step at which it is paused, but approve it after its workload was rolled back.")
	return cmd
}

func (u *undo) one(ctx context.Context, info *resource.Info) error {
	object, err := change.Document(info)
	if err != nil {
		return err
	}

	switch kind := workload.Kind(object); {
	case kind == workload.Rollout:
		return u.rollout(ctx, info, object)
	case kind == workloadkind.UnitedDeployment:
		return fmt.Errorf(
			"the revisions of a UnitedDeployment hold templates of workloads, which cannot be undone")
	case kind == workloadkind.Deployment && workload.IsPaused(object) &&
		u.change.DryRun != cmdutil.DryRunClient:
		return fmt.Errorf(
			"you cannot rollback a paused deployment; resume it first with 'rollout resume' and try again")
	}

	target, err := UndoTarget(ctx, u.factory, object, u.to)
	if err != nil {
		return err
	}

	changed, err := change.Apply(ctx, info, u.change.Options, func(object *unstructured.Unstructured) error {
		return Restore(object, target)
	})

	switch {
	case err != nil:
		return err
	case !changed:
		return u.change.Print(info.Object,
			fmt.Sprintf("skipped rollback (current template already matches revision %d)", target.Number))
	case u.change.DryRun == cmdutil.DryRunClient && !u.change.Formatted():
		text, err := described(target.Template)
		if err != nil {
			return err
		}

		return u.change.Print(info.Object,
			fmt.Sprintf("with revision #%d\n%s", target.Number, text))
	}
	return u.change.Print(info.Object, "rolled back")
}

// UndoTarget returns the revision with the number to, or for 0 the one before the latest.
func UndoTarget(
	ctx context.Context, f cmdutil.Factory, object *unstructured.Unstructured, to int64,
) (*Revision, error) {
	revisions, err := RevisionsOf(ctx, f, object)
	if err != nil {
		return nil, err
	}
	if to > 0 {
		return find(revisions, to)
	}
	return before(object, revisions)
}

// Restore replaces the template of the object with that of the revision, so that nothing of the present
// template stays. It changes nothing if the two mean the same.
func Restore(object *unstructured.Unstructured, target *Revision) error {
	now, _, err := unstructured.NestedMap(object.Object, "spec", "template")
	if err != nil {
		return err
	}
	if sameTemplate(now, target.Template) {
		return nil
	}

	if err := unstructured.SetNestedMap(object.Object, target.Template, "spec", "template"); err != nil {
		return err
	}

	if workload.Kind(object) == workloadkind.Deployment {
		annotate(object, target.Stored)
	}
	return bringClaims(object, target)
}

// sameTemplate reports whether two templates mean the same, regardless of who wrote them.
func sameTemplate(a, b map[string]any) bool {
	var data [2][]byte
	for i, template := range []map[string]any{a, b} {
		encoded, err := json.Marshal(template)
		if err != nil {
			return false
		}
		if data[i], err = revision.Data(encoded); err != nil {
			return false // not a pod template
		}
	}
	return revision.Equal(data[0], data[1])
}

// ofDeployment lists the annotations that a Deployment keeps when it gets those of its ReplicaSet.
var ofDeployment = []string{
	corev1.LastAppliedConfigAnnotation,
	deployment.RevisionAnnotation,
	deployment.RevisionHistoryAnnotation,
	deployment.DesiredReplicasAnnotation,
	deployment.MaxReplicasAnnotation,
	appsv1.DeprecatedRollbackTo,
}

// annotate restores the annotations that a Deployment had at the revision, as kubectl does.
func annotate(object, replicaSet *unstructured.Unstructured) {
	annotations, now := maps.Clone(replicaSet.GetAnnotations()), object.GetAnnotations()
	for _, key := range ofDeployment {
		delete(annotations, key)
		if value, ok := now[key]; ok {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[key] = value
		}
	}
	object.SetAnnotations(annotations)
}

// bringClaims adds the claim templates that the restored template mounts and the set no longer has, if the
// revision remembers them.
func bringClaims(object *unstructured.Unstructured, target *Revision) error {
	text, ok := target.Stored.GetAnnotations()[pub.ClaimTemplates]
	if !ok || workload.Kind(object) != workloadkind.CloneSet {
		return nil
	}

	remembered := []map[string]any{}
	if err := json.Unmarshal([]byte(text), &remembered); err != nil {
		return fmt.Errorf("reading annotation %s of revision %s: %w",
			pub.ClaimTemplates, target.Stored.GetName(), err)
	}

	claims, _, err := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		return err
	}

	volumes, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "volumes")
	there := map[string]bool{}
	for _, one := range append(volumes, claims...) {
		fields, _ := one.(map[string]any)
		name, _ := fields["name"].(string)
		if metadata, ok := fields["metadata"].(map[string]any); ok {
			name, _ = metadata["name"].(string)
		}
		there[name] = true
	}

	containers, err := workload.Containers(object)
	if err != nil {
		return err
	}

	mounted := map[string]bool{}
	for _, c := range containers {
		typed, err := c.Typed()
		if err != nil {
			return err
		}

		for _, mount := range typed.VolumeMounts {
			mounted[mount.Name] = true
		}
		for _, device := range typed.VolumeDevices {
			mounted[device.Name] = true
		}
	}

	for _, claim := range remembered {
		name, _, _ := unstructured.NestedString(claim, "metadata", "name")
		if mounted[name] && !there[name] {
			claims = append(claims, withoutNull(claim))
		}
	}

	if len(claims) == 0 {
		return nil
	}

	return unstructured.SetNestedSlice(object.Object, claims, "spec", "volumeClaimTemplates")
}
