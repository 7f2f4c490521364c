package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/apply"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/utils/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

var planLong = templates.LongDesc(`
	Say what would become of the pods if manifests were applied: which are updated in place, and which of their containers restart; which are recreated, and because of
	what; in which order and waves; and what would hold the rollout.

	The manifests are applied as dry runs by the API server, with all its admission, and the manager's own code then plays the rollout on a copy of what you may read. Nothing is
	written. Pods are taken to become ready as soon as they can, pods that are not ready now stay so until they are touched, and whoever answers lifecycle hooks is taken to do
	so at once. What webhooks of others add to new pods is not known. The times are the shortest possible: minReadySeconds, grace periods and the like, without images being pulled and
	applications starting.

	Objects with pods that no plans are made for, such as a UnitedDeployment, are an error if they change; the plans of the others are printed.

	The exit code is 0 if no pod is touched, 1 after an error, 2 if pods are created or updated in place, 3 if pods are recreated or deleted, and 4 if the rollout would not
	end by itself.`)

var planExample = templates.Examples(`
	# What would this manifest do?
	kubectl afloat plan -f web.yaml

	# What would another image do?
	kubectl afloat set image clone/web app=nginx:1.29 --dry-run=client -o yaml | kubectl afloat plan -f -`)

// Exit codes of plan.
const (
	codeTouched   = 2
	codeRecreated = 3
	codeHeld      = 4
)

// defaultTimeout bounds the time for making all plans.
const defaultTimeout = 2 * time.Minute

// planOptions holds the options of the command plan.
type planOptions struct {
	genericiooptions.IOStreams
	files            genericclioptions.FileNameFlags
	output           string
	managerNamespace string
	selector         string
	serverSide       bool
	forceConflicts   bool
	timeout          time.Duration
}

// NewPlan returns the command plan.
func NewPlan(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	names, kustomize, recursive := []string{}, "", false
	o := &planOptions{
		IOStreams: streams,
		files: genericclioptions.FileNameFlags{
			Usage:     "that contains the manifests to plan for",
			Filenames: &names,
			Kustomize: &kustomize,
			Recursive: &recursive,
		},
	}
	cmd := &cobra.Command{
		Use:                   "plan (-f FILENAME | -k DIRECTORY) [-o json|yaml|wide]",
		DisableFlagsInUseLine: true,
		Short:                 "Say what would become of the pods if a manifest were applied",
		Long:                  planLong,
		Example:               planExample,
		Args:                  cobra.NoArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), f) },
	}

	o.files.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "take only the objects with these labels")
	cmd.Flags().BoolVar(&o.serverSide, "server-side", false,
		"apply as kubectl apply --server-side does")
	cmd.Flags().BoolVar(&o.forceConflicts, "force-conflicts", false,
		"with --server-side, take fields over from other managers")
	cmd.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout,
		"for how long plans are made; 0 means without end")
	addOutput(cmd, &o.output, "wide")
	addManagerNamespace(cmd, &o.managerNamespace)
	return cmd
}

func (o *planOptions) run(ctx context.Context, f cmdutil.Factory) error {
	if err := checkOutput(o.output, "wide"); err != nil {
		return err
	}

	documents, err := o.dryRun(f)
	if err != nil {
		return err
	}

	reader, _, err := connect(f, o.managerNamespace)
	if err != nil {
		return err
	}

	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}

	previews, failed := o.previews(ctx, reader, documents)
	if err := o.print(previews); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}

	code := 0
	for _, preview := range previews {
		code = max(code, preview.code())
	}

	if code != 0 {
		return exec.CodeExitError{Err: errors.New(""), Code: code}
	}
	return nil
}

// previews returns the previews of all objects that plans are made for, with an error for each one that
// failed.
func (o *planOptions) previews(
	ctx context.Context, reader *Reader, documents []*unstructured.Unstructured,
) (previews []*Preview, _ error) {
	var errs []error
	for _, document := range documents {
		preview, err := o.preview(ctx, reader, document, documents)
		if err != nil {
			errs = append(errs, err)
		} else if preview != nil {
			previews = append(previews, preview)
		}
	}
	return previews, utilerrors.NewAggregate(errs)
}

// preview returns the preview of one object. For a kind without plans it returns nil if the object has no
// pods of its own or does not change, and an error if it changes.
func (o *planOptions) preview(
	ctx context.Context, reader *Reader,
	document *unstructured.Unstructured, all []*unstructured.Unstructured,
) (*Preview, error) {
	if kind := KindOf(document.GroupVersionKind().GroupKind()); kind != nil {
		wanted, err := Typed(kind, document)
		if err != nil {
			return nil, err
		}
		return reader.Preview(ctx, kind.Name, wanted, all)
	}

	name := document.GetKind() + " " + document.GetName()

	scheduled := workloadkind.Of(workload.Kind(document)).Schedule
	if specs, _ := workload.PodSpecs(document); len(specs) == 0 || scheduled {
		fmt.Fprintf(o.ErrOut, "Note: no plans are made for %s: it has no pods of its own\n", name)
		return nil, nil
	}

	present := &unstructured.Unstructured{}
	present.SetGroupVersionKind(document.GroupVersionKind())
	if err := reader.client.Get(ctx, client.ObjectKeyFromObject(document),
		present); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	if equality.Semantic.DeepEqual(present.Object["spec"], document.Object["spec"]) {
		fmt.Fprintf(o.ErrOut, "Note: %s is as the manifest wants it\n", name)
		return nil, nil
	}
	return nil, fmt.Errorf("no plans are made for %s: what becomes of its pods is not known", name)
}

// dryRun returns the manifests as the API server would store them.
func (o *planOptions) dryRun(f cmdutil.Factory) ([]*unstructured.Unstructured, error) {
	out := &bytes.Buffer{}
	flags := apply.NewApplyFlags(genericiooptions.IOStreams{In: o.In, Out: out, ErrOut: o.ErrOut})
	cmd := &cobra.Command{}
	flags.AddFlags(cmd)

	set := map[string][]string{"dry-run": {"server"}, "output": {"json"}, "filename": *o.files.Filenames}
	if *o.files.Kustomize != "" {
		set["kustomize"] = []string{*o.files.Kustomize}
	}
	for name, on := range map[string]bool{
		"recursive":       *o.files.Recursive,
		"server-side":     o.serverSide,
		"force-conflicts": o.forceConflicts,
	} {
		if on {
			set[name] = []string{"true"}
		}
	}

	if o.selector != "" {
		set["selector"] = []string{o.selector}
	}

	for name, values := range set {
		for _, value := range values {
			if err := cmd.Flags().Set(name, value); err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
		}
	}

	applying, err := flags.ToOptions(f, cmd, "kubectl", nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	if err := applying.Validate(); err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	if err := applying.Run(); err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}

	var documents []*unstructured.Unstructured
	decoder := json.NewDecoder(out)
	for decoder.More() {
		document := &unstructured.Unstructured{}
		if err := decoder.Decode(&document.Object); err != nil {
			return nil, fmt.Errorf("reading what the API server answered: %w", err)
		}
		if !document.IsList() {
			documents = append(documents, document)
			continue
		}

		list, err := document.ToList()
		if err != nil {
			return nil, fmt.Errorf("reading what the API server answered: %w", err)
		}
		for i := range list.Items {
			documents = append(documents, &list.Items[i])
		}
	}
	return documents, nil
}
