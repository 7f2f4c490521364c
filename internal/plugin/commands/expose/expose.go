// Package expose implements kubectl's command expose, which also knows the project's workloads (OPS-162).
package expose

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/kubectl/pkg/cmd/expose"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

// own lists the kinds that kubectl does not know. The command uses only their selector and ports, which are
// at the same paths as in a Deployment.
var own = map[schema.GroupKind]bool{
	{Group: "apps.kruise.io", Kind: "CloneSet"}:    true,
	{Group: "apps.kruise.io", Kind: "StatefulSet"}: true,
}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	flags := expose.NewExposeFlags(streams)
	cmd := &cobra.Command{
		Use:                   "expose (-f FILENAME | TYPE NAME) [--port=port] [--protocol=protocol] [--target-port=number-or-name] [--name=name]",
		DisableFlagsInUseLine: true,
		Short:                 "Take a workload, service or pod and expose it as a new Kubernetes service",
		Long: templates.LongDesc(`
			Expose a resource as a new Kubernetes service: its selector becomes that of the service, and its ports too unless --port names
			others. Possible resources are: pod (po), service (svc), replicationcontroller (rc), deployment (deploy), replicaset (rs),
			cloneset (clone) and the StatefulSet of apps.kruise.io (asts).`),
		Example: templates.Examples(`
			# A service for the pods of a CloneSet, on the ports of their containers
			kubectl afloat expose cloneset web

			# A service on port 80 that connects to port 8000 of the containers
			kubectl afloat expose asts ledger --port=80 --target-port=8000 --name=ledger-http`),
		ValidArgsFunction: completion.SpecifiedResourceTypeAndNameCompletionFunc(f, []string{
			"cloneset", "asts", "pod", "service", "replicationcontroller", "deployment", "replicaset",
		}),
		RunE: func(cmd *cobra.Command, args []string) error { return run(f, flags, cmd, args) },
	}
	flags.AddFlags(cmd)
	return cmd
}

func run(f cmdutil.Factory, flags *expose.ExposeServiceFlags, cmd *cobra.Command, args []string) error {
	namespace, enforce, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}

	files := flags.FilenameOptions
	return f.NewBuilder().Unstructured().ContinueOnError().
		NamespaceParam(namespace).DefaultNamespace().
		FilenameParam(enforce, &files).
		ResourceTypeOrNameArgs(false, args...).
		Flatten().Do().
		Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}

			kind := info.Mapping.GroupVersionKind.GroupKind()
			document, err := change.Document(info)
			if err != nil {
				return err
			}

			if own[kind] {
				document = asDeployment(document)
			} else if err := polymorphichelpers.CanBeExposedFn(kind); err != nil {
				return err
			}
			return one(f, flags, cmd, document)
		})
}

// asDeployment returns a Deployment with the parts of a workload that matter to a service.
func asDeployment(workload *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(workload.Object, "spec")
	d := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"spec": map[string]any{"selector": spec["selector"], "template": spec["template"]},
	}}
	d.SetName(workload.GetName())
	d.SetNamespace(workload.GetNamespace())
	d.SetLabels(workload.GetLabels())
	return d
}

// one exposes one object with kubectl's command. It writes the object to a temporary file, because kubectl
// accepts objects in no other way.
func one(
	f cmdutil.Factory, flags *expose.ExposeServiceFlags, cmd *cobra.Command,
	document *unstructured.Unstructured,
) error {
	file, err := os.CreateTemp("", "expose-*.json")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()

	raw, err := document.MarshalJSON()
	if err == nil {
		_, err = file.Write(raw)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", file.Name(), err)
	}

	o, err := flags.ToOptions(cmd, nil)
	if err != nil {
		return err
	}

	o.FilenameOptions = resource.FilenameOptions{Filenames: []string{file.Name()}}
	if err := o.Complete(f); err != nil {
		return err
	}

	if cmd.Context() == nil {
		cmd.SetContext(context.Background())
	}

	return o.RunExpose(cmd, nil)
}
