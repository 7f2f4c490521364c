package workload

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/tools/clientcmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// Selection selects objects by the arguments and flags of a command.
type Selection struct {
	resource.FilenameOptions
	// Selector is a label selector.
	Selector string
	// All selects all objects of the given kinds.
	All bool
	// Local means that only files are read, and the API server is not called.
	Local bool
	// Stdin means that the command reads something else from its standard input.
	Stdin bool
}

// AddFlags adds the flags -f, -k, -R and -l.
func (s *Selection) AddFlags(cmd *cobra.Command) {
	cmdutil.AddFilenameOptionFlags(cmd, &s.FilenameOptions, "identifying the resource to get from a server.")
	cmdutil.AddLabelSelectorFlagVar(cmd, &s.Selector)
}

// AddSetFlags also adds the flags --all and --local.
func (s *Selection) AddSetFlags(cmd *cobra.Command) {
	s.AddFlags(cmd)
	cmd.Flags().BoolVar(&s.All, "all", s.All,
		"Select all resources, in the namespace of the specified resource types.")
	cmd.Flags().BoolVar(&s.Local, "local", s.Local,
		"If true, the command does not contact the API server but works on the files given.")
}

// Infos reads the objects as documents. It may return both objects and the error about those that it could
// not read.
func (s *Selection) Infos(f cmdutil.Factory, args []string) ([]*resource.Info, error) {
	if s.All && s.Selector != "" {
		return nil, errors.New("cannot set --all and --selector at the same time")
	}
	if len(args) == 0 && cmdutil.IsFilenameSliceEmpty(s.Filenames, s.Kustomize) {
		return nil, errors.New(
			"one or more resources must be specified as <resource> <name> or <resource>/<name>")
	}

	namespace, enforce, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil && (!s.Local || !clientcmd.IsEmptyConfig(err)) {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}

	builder := f.NewBuilder().Unstructured().LocalParam(s.Local).ContinueOnError().
		NamespaceParam(namespace).DefaultNamespace().
		FilenameParam(enforce, &s.FilenameOptions).Flatten()
	if s.Stdin {
		builder = builder.StdinInUse()
	}

	switch {
	case s.Local && len(args) > 0:
		return nil, resource.LocalResourceError
	case !s.Local:
		builder = builder.LabelSelectorParam(s.Selector).ResourceTypeOrNameArgs(s.All, args...).Latest()
	}

	return builder.Do().Infos()
}

// One reads the selected object, and returns an error unless there is exactly one.
func (s *Selection) One(f cmdutil.Factory, args []string) (*resource.Info, error) {
	infos, err := s.Infos(f, args)
	if err != nil {
		return nil, err
	}
	if len(infos) != 1 {
		return nil, fmt.Errorf("exactly one resource must be named, and these are %d", len(infos))
	}
	return infos[0], nil
}
