package set

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/workload"
)

func newServiceAccount(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions(f, streams, "serviceaccount updated")
	cmd := &cobra.Command{
		Use:                   "serviceaccount (-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
		Aliases:               []string{"sa"},
		DisableFlagsInUseLine: true,
		Short:                 "Set the service account of workloads",
		Long: templates.LongDesc(`
			Set the service account of pod templates.
			` + resources + `.`),
		Example: templates.Examples(`
			# The pods of a CloneSet run as another service account
			kubectl afloat set serviceaccount cloneset/web deployer

			# Print what a file would become, without an API server
			kubectl afloat set sa -f web.yaml deployer --local -o yaml`),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			if len(args) == 0 || args[len(args)-1] == "" {
				return errors.New("serviceaccount is required")
			}

			account := args[len(args)-1]
			return o.run(cmd.Context(), args[:len(args)-1], func(object *unstructured.Unstructured) error {
				templates, err := workload.Templates(object)
				for _, template := range templates {
					if err := unstructured.SetNestedField(object.Object, account,
						template.Child("spec", "serviceAccountName")...); err != nil {
						return err
					}

					// Older versions call the field serviceAccount. The API server keeps the two the same.
					old := template.Child("spec", "serviceAccount")
					if _, ok, _ := unstructured.NestedString(object.Object, old...); ok {
						if err := unstructured.SetNestedField(object.Object, account, old...); err != nil {
							return err
						}
					}
				}
				return err
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}
