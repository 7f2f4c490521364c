package change

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/scheme"
)

// Clients are the methods of kubectl's factory that are needed to create objects.
type Clients interface {
	ToRESTMapper() (meta.RESTMapper, error)
	UnstructuredClientForMapping(mapping *meta.RESTMapping) (resource.RESTClient, error)
}

// Flags are the flags of commands that write objects and print them.
type Flags struct {
	// Print holds the flags for the output format.
	Print   *genericclioptions.PrintFlags
	manager string
}

// NewFlags returns the flags of a command; operation describes what it has done to an object.
func NewFlags(operation string) *Flags {
	return &Flags{Print: genericclioptions.NewPrintFlags(operation).WithTypeSetter(scheme.Scheme)}
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	f.Print.AddFlags(cmd)
	cmdutil.AddDryRunFlag(cmd)
	cmdutil.AddFieldManagerFlagVar(cmd, &f.manager, FieldManager)
}

// Options returns the options according to the flags, and the printer for the results.
func (f *Flags) Options(cmd *cobra.Command) (Options, printers.ResourcePrinter, error) {
	strategy, err := cmdutil.GetDryRunStrategy(cmd)
	if err != nil {
		return Options{}, nil, err //nolint:wrapcheck // it says what is wrong with the flag
	}

	o := Options{DryRun: strategy, FieldManager: f.manager}
	if cmd.Flags().Lookup("validate") != nil {
		if o.FieldValidation, err = cmdutil.GetValidationDirective(cmd); err != nil {
			return Options{}, nil, err //nolint:wrapcheck // it says what is wrong with the flag
		}
	}

	cmdutil.PrintFlagsWithDryRunStrategy(f.Print, strategy)
	printer, err := f.Print.ToPrinter()
	return o, printer, err
}

// Mapping returns the resource of a kind in the version that the server prefers.
func Mapping(clients Clients, kind schema.GroupKind) (*meta.RESTMapping, error) {
	mapper, err := clients.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("asking the server which kinds it serves: %w", err)
	}
	return mapper.RESTMapping(kind)
}

// Create creates the object and returns it as the server answers. A client-side dry run returns the object
// unchanged.
func Create(clients Clients, o Options,
	object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o.DryRun == cmdutil.DryRunClient {
		return object, nil
	}

	mapping, err := Mapping(clients, object.GroupVersionKind().GroupKind())
	if err != nil {
		return nil, err
	}

	client, err := clients.UnstructuredClientForMapping(mapping)
	if err != nil {
		return nil, err
	}

	helper := resource.NewHelper(client, mapping).
		DryRun(o.DryRun == cmdutil.DryRunServer).
		WithFieldManager(o.manager()).
		WithFieldValidation(o.FieldValidation)
	created, err := helper.CreateWithOptions(object.GetNamespace(), false, object, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}

	document, ok := created.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%s/%s was answered as a %T", mapping.Resource.Resource, object.GetName(),
			created)
	}

	return document, nil
}
