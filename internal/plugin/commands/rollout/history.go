package rollout

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/describe"
	"k8s.io/kubectl/pkg/scheme"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// history shows the revisions of workloads.
type history struct {
	workload.Selection
	revision int64
	print    *genericclioptions.PrintFlags
	factory  cmdutil.Factory
	genericiooptions.IOStreams
}

func newHistory(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	h := &history{
		print:     genericclioptions.NewPrintFlags("").WithTypeSetter(scheme.Scheme),
		factory:   f,
		IOStreams: streams,
	}
	cmd := &cobra.Command{
		Use:                   "history (TYPE NAME | TYPE/NAME) [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Show the revisions of a workload",
		Long: templates.LongDesc(`
			Show the revisions of a workload's pod template that are stored, with the reasons recorded in the annotation kubernetes.io/change-cause.

			With -o the workload is printed as it would be with each revision's template; a Deployment's revisions are its ReplicaSets.`),
		Example: templates.Examples(`
			# Show the revisions of a CloneSet
			kubectl afloat rollout history cloneset/web

			# Show the pod template of the third one
			kubectl afloat rollout history cloneset/web --revision=3`),
		ValidArgsFunction: completion.SpecifiedResourceTypeAndNameCompletionFunc(f, versioned),
		RunE: func(cmd *cobra.Command, args []string) error {
			if h.revision < 0 {
				return fmt.Errorf("revision must be a positive integer: %v", h.revision)
			}

			infos, err := h.Infos(f, args)
			var failed []error
			if err != nil {
				failed = append(failed, err)
			}

			for _, info := range infos {
				if err := h.show(cmd.Context(), info); err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", change.Name(info), err))
				}
			}

			return utilerrors.NewAggregate(failed)
		},
	}

	h.AddFlags(cmd)
	h.print.AddFlags(cmd)
	cmd.Flags().Int64Var(&h.revision, "revision", 0,
		"See the details, including podTemplate of the revision specified.")

	return cmd
}

func (h *history) show(ctx context.Context, info *resource.Info) error {
	object, err := change.Document(info)
	if err != nil {
		return err
	}

	if workload.Kind(object) == workloadkind.UnitedDeployment {
		return fmt.Errorf(
			"the revisions of a UnitedDeployment hold templates of workloads; look at those of its workloads")
	}

	revisions, err := RevisionsOf(ctx, h.factory, object)
	if err != nil {
		return err
	}

	if h.revision > 0 {
		one, err := find(revisions, h.revision)
		if err != nil {
			return err
		}
		revisions = []*Revision{one}
	}

	switch {
	case h.print.OutputFlagSpecified():
		return h.printObjects(object, revisions)
	case len(revisions) == 0:
		fmt.Fprintf(h.Out, "%s\nNo rollout history found.\n", change.Name(info))
	case h.revision > 0:
		text, err := described(revisions[0].Template)
		if err != nil {
			return err
		}
		fmt.Fprintf(h.Out, "%s with revision #%d\n%s", change.Name(info), h.revision, text)
	default:
		table := tabwriter.NewWriter(h.Out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(table, "%s\nREVISION\tCHANGE-CAUSE\n", change.Name(info))
		for _, r := range revisions {
			fmt.Fprintf(table, "%d\t%s\n", r.Number, r.Cause())
		}
		return table.Flush()
	}

	return nil
}

// printObjects prints the object as it would be with the template of each revision. For a Deployment it
// prints the ReplicaSets.
func (h *history) printObjects(object *unstructured.Unstructured, revisions []*Revision) error {
	printer, err := h.print.ToPrinter()
	if err != nil {
		return err
	}

	for _, r := range revisions {
		of := r.Stored
		if workload.Kind(object) != workloadkind.Deployment {
			of = object.DeepCopy()
			if err := unstructured.SetNestedMap(of.Object, r.Template, "spec", "template"); err != nil {
				return err
			}
		}
		if err := printer.PrintObj(of, h.Out); err != nil {
			return err
		}
	}
	return nil
}

// described returns a human-readable description of a pod template.
func described(template map[string]any) (string, error) {
	typed := &corev1.PodTemplateSpec{}
	if err := workload.Decode(template, typed); err != nil {
		return "", err
	}

	var text strings.Builder
	describe.DescribePodTemplate(typed, describe.NewPrefixWriter(&text))
	return text.String(), nil
}
