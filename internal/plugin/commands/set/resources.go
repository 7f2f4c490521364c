package set

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/workload"
)

func newResources(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions(f, streams, "resource requirements updated")
	limits, requests, containers := "", "", every
	cmd := &cobra.Command{
		Use:                   "resources (-f FILENAME | TYPE NAME) ([--limits=LIMITS & --requests=REQUESTS]",
		DisableFlagsInUseLine: true,
		Short:                 "Set requests and limits of containers",
		Long: templates.LongDesc(`
			Set requests and limits of containers and init containers. Those that are not named stay as they are; 0 as a value sets a bound of zero.
			` + resources + `.`),
		Example: templates.Examples(`
			# Set the limits of all containers of a CloneSet
			kubectl afloat set resources cloneset/web --limits=cpu=200m,memory=512Mi

			# Set requests and limits of one container
			kubectl afloat set resources statefulset.apps.kruise.io/db -c app --limits=memory=2Gi --requests=cpu=1,memory=1Gi`),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}

			wanted := map[string]map[string]any{}
			for name, text := range map[string]string{"limits": limits, "requests": requests} {
				if text == "" {
					continue
				}
				quantities, err := parseQuantities(text)
				if err != nil {
					return fmt.Errorf("--%s: %w", name, err)
				}
				wanted[name] = quantities
			}

			if len(wanted) == 0 {
				return errors.New(
					"you must specify an update to requests or limits (in the form of --requests/--limits)")
			}

			return o.run(cmd.Context(), args, func(object *unstructured.Unstructured) error {
				found, err := matching(object, containers)
				for _, c := range found {
					for list, quantities := range wanted {
						setQuantities(c, list, quantities)
					}
				}
				return err
			})
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&limits, "limits", limits,
		"The resource requirement limits for this container. For example, 'cpu=100m,memory=256Mi'.")
	cmd.Flags().StringVar(&requests, "requests", requests,
		"The resource requirement requests for this container. For example, 'cpu=100m,memory=256Mi'.")
	cmd.Flags().StringVarP(&containers, "containers", "c", containers,
		"The names of containers in the selected pod templates to change, all containers are selected by default - may use wildcards.")
	return cmd
}

// setQuantities sets quantities of one list. It leaves a quantity with an equal value as it is written.
func setQuantities(c workload.Container, list string, quantities map[string]any) {
	value, _ := c.Fields["resources"].(map[string]any)
	if value == nil {
		value = map[string]any{}
		c.Fields["resources"] = value
	}
	present, _ := value[list].(map[string]any)
	if present == nil {
		present = map[string]any{}
		value[list] = present
	}

	wanted := maps.Clone(quantities)
	maps.DeleteFunc(wanted, func(name string, quantity any) bool {
		was, err := resource.ParseQuantity(fmt.Sprint(present[name]))
		return err == nil && was.Cmp(resource.MustParse(fmt.Sprint(quantity))) == 0
	})
	maps.Copy(present, wanted)
}

// parseQuantities parses a list such as "cpu=100m,memory=256Mi".
func parseQuantities(text string) (map[string]any, error) {
	quantities := map[string]any{}
	for statement := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(statement, "=")
		if !ok || name == "" || strings.Contains(value, "=") {
			return nil, fmt.Errorf("invalid argument syntax %v, expected <resource>=<value>", statement)
		}
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
		quantities[name] = quantity.String()
	}
	return quantities, nil
}
