package workload

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/tools/clientcmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// Selection are the objects that a command line means.
type Selection struct {
	resource.FilenameOptions
	// Selector selects by labels.
	Selector string
	// All means all objects of the kinds given.
	All bool
	// Local means that only files are read, and the API server is not asked.
	Local bool
	// Stdin tells that the command reads something else from its standard input.
	Stdin bool
}

// AddFlags adds -f, -k, -R and -l.
func (s *Selection) AddFlags(cmd *cobra.Command) {
	cmdutil.AddFilenameOptionFlags(cmd, &s.FilenameOptions, "identifying the resource to get from a server.")
	cmdutil.AddLabelSelectorFlagVar(cmd, &s.Selector)
}

// AddSetFlags adds --all and --local as well.
func (s *Selection) AddSetFlags(cmd *cobra.Command) {
	s.AddFlags(cmd)
	cmd.Flags().BoolVar(&s.All, "all", s.All,
		"Select all resources, in the namespace of the specified resource types.")
	cmd.Flags().BoolVar(&s.Local, "local", s.Local,
		"If true, the command does not contact the API server but works on the files given.")
}

// Infos reads the objects as documents. What could be read is returned beside the error of what could not.
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
	builder := f.NewBuilder().Unstructured().LocalParam(s.Local).ContinueOnError().NamespaceParam(
		namespace).DefaultNamespace().
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

// One reads the one object that is meant, and fails if there are more or none.
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
