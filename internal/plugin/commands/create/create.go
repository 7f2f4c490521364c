// Package create implements kubectl's command create, which also creates the project's jobs, requests to
// recreate containers, and PodUnavailableBudgets (OPS-160, OPS-161, OPS-168).
package create

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/create"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

const group = "apps.kruise.io"

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := create.NewCmdCreate(f, streams)
	for _, sub := range cmd.Commands() {
		if sub.Name() == "job" { // this package's own command knows AdvancedCronJobs too
			cmd.RemoveCommand(sub)
		}
	}
	for _, kind := range jobs {
		cmd.AddCommand(newJob(f, streams, kind))
	}
	cmd.AddCommand(newRequest(f, streams), newBudget(f, streams))
	return cmd
}

// creation holds what all commands that create one object have in common.
type creation struct {
	cmdutil.Factory
	genericiooptions.IOStreams
	flags *change.Flags
}

func newCreation(f cmdutil.Factory, streams genericiooptions.IOStreams, cmd *cobra.Command) *creation {
	c := &creation{f, streams, change.NewFlags("created")}
	c.flags.Add(cmd)
	cmdutil.AddValidateFlags(cmd)
	cmdutil.AddApplyAnnotationFlags(cmd)
	return c
}

// name returns the only argument, or the only one before the dash.
func name(cmd *cobra.Command, args []string) (string, error) {
	before := len(args)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		before = dash
	}
	if before != 1 {
		return "", cmdutil.UsageErrorf(cmd, "exactly one NAME is required, got %d", before)
	}
	return args[0], nil
}

func (c *creation) namespace() (string, error) {
	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// object returns an empty object of the kind, in the version that the server serves.
func (c *creation) object(kind schema.GroupKind, name string) (*unstructured.Unstructured, error) {
	mapping, err := change.Mapping(c, kind)
	if err != nil {
		return nil, err
	}
	namespace, err := c.namespace()
	if err != nil {
		return nil, err
	}

	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object, nil
}

// one reads the single object that an argument such as cronjob/nightly names.
func (c *creation) one(argument string) (*unstructured.Unstructured, error) {
	namespace, err := c.namespace()
	if err != nil {
		return nil, err
	}

	infos, err := c.NewBuilder().Unstructured().
		NamespaceParam(namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, argument).
		Flatten().Latest().Do().Infos()
	if err != nil {
		return nil, err
	}
	if len(infos) != 1 {
		return nil, fmt.Errorf("%s names %d objects, and must name one", argument, len(infos))
	}
	return change.Document(infos[0])
}

// finish creates the object and prints it.
func (c *creation) finish(cmd *cobra.Command, object *unstructured.Unstructured) error {
	o, printer, err := c.flags.Options(cmd)
	if err != nil {
		return err
	}

	annotate := cmdutil.GetFlagBool(cmd, cmdutil.ApplyAnnotationsFlag)
	if err := util.CreateOrUpdateAnnotation(annotate, object,
		unstructured.UnstructuredJSONScheme); err != nil {
		return fmt.Errorf("writing the annotation of kubectl apply: %w", err)
	}

	created, err := change.Create(c, o, object)
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}

	return printer.PrintObj(created, c.Out)
}
