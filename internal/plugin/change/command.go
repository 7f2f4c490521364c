package change

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/scheme"
)

// Command changes objects for a command, and prints the results in the format of -o.
type Command struct {
	Options
	// Local means that nothing is written, because the objects come from files only.
	Local bool

	operation string
	print     *genericclioptions.PrintFlags
	streams   genericiooptions.IOStreams
}

// NewCommand returns a Command. operation describes a changed object, such as "paused".
func NewCommand(operation string, streams genericiooptions.IOStreams) *Command {
	return &Command{operation: operation,
		print: genericclioptions.NewPrintFlags(operation).WithTypeSetter(scheme.Scheme), streams: streams}
}

// AddFlags adds -o, --dry-run, --field-manager and related flags.
func (c *Command) AddFlags(cmd *cobra.Command) {
	c.print.AddFlags(cmd)
	cmdutil.AddDryRunFlag(cmd)
	cmdutil.AddFieldManagerFlagVar(cmd, &c.FieldManager, FieldManager)
}

// Complete evaluates the flags.
func (c *Command) Complete(cmd *cobra.Command) (err error) {
	if c.DryRun, err = cmdutil.GetDryRunStrategy(cmd); err != nil {
		return err
	}
	if c.Local && c.DryRun == cmdutil.DryRunServer {
		return fmt.Errorf("cannot specify --local and --dry-run=server - did you mean --dry-run=client?")
	}
	return nil
}

// Formatted reports whether the user requested an output format with -o.
func (c *Command) Formatted() bool { return c.print.OutputFlagSpecified() }

// Each changes all objects and returns the errors together; it does not stop at an error. [Apply] describes
// edit.
func (c *Command) Each(ctx context.Context, infos []*resource.Info,
	edit func(*unstructured.Unstructured) error) error {
	var failed []error
	for _, info := range infos {
		if err := c.One(ctx, info, edit); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", Name(info), err))
		}
	}
	return utilerrors.NewAggregate(failed)
}

// One changes one object and prints it.
func (c *Command) One(ctx context.Context, info *resource.Info,
	edit func(*unstructured.Unstructured) error) error {
	options := c.Options
	if c.Local {
		options.DryRun = cmdutil.DryRunClient
	}

	changed, err := Apply(ctx, info, options, edit)
	if err != nil {
		return err
	}

	operation := c.operation
	if !changed {
		operation = "unchanged"
	}

	return c.Print(info.Object, operation)
}

// Print prints the object in the requested format, or by default its name and the operation.
func (c *Command) Print(object runtime.Object, operation string) error {
	flags := *c.print
	names := *c.print.NamePrintFlags
	flags.NamePrintFlags = &names
	names.Operation = operation
	if !c.Local {
		cmdutil.PrintFlagsWithDryRunStrategy(&flags, c.DryRun)
	}
	printer, err := flags.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(object, c.streams.Out)
}

// Name returns the name of an object as in messages: cloneset.apps.kruise.io/web.
func Name(info *resource.Info) string {
	kind := info.Object.GetObjectKind().GroupVersionKind().GroupKind()
	return strings.ToLower(kind.String()) + "/" + info.Name
}
