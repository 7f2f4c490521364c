package create

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
)

func newBudget(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	var selector, target, maxUnavailable, minAvailable string
	cmd := &cobra.Command{
		Use:                   "podunavailablebudget NAME (--selector=SELECTOR | --target=TYPE/NAME) (--max-unavailable=N | --min-available=N)",
		Aliases:               []string{"PodUnavailableBudget", "pub"},
		DisableFlagsInUseLine: true,
		Short:                 "Create a pod unavailable budget with the specified name",
		Long: templates.LongDesc(`
			Create a PodUnavailableBudget: it limits how many pods of a workload, or of those with some labels, may be out of service at
			once. Numbers are those of pods or percentages.`),
		Example: templates.Examples(`
			# At most a quarter of the pods of a CloneSet may be out of service
			kubectl afloat create pub web --target=cloneset/web --max-unavailable=25%

			# Two pods with the label app=cache must always serve
			kubectl afloat create pub cache --selector=app=cache --min-available=2`),
	}

	c := newCreation(f, streams, cmd)
	cmd.Flags().StringVar(&selector, "selector", "", "The labels of the pods.")
	cmd.Flags().StringVar(&target, "target", "", "The workload whose pods they are.")
	cmd.Flags().StringVar(&maxUnavailable, "max-unavailable", "", "How many pods may be out of service.")
	cmd.Flags().StringVar(&minAvailable, "min-available", "", "How many pods must stay in service.")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := name(cmd, args)
		switch {
		case err != nil:
			return err
		case (selector == "") == (target == ""):
			return cmdutil.UsageErrorf(cmd, "exactly one of --selector and --target must be specified")
		case (maxUnavailable == "") == (minAvailable == ""):
			return cmdutil.UsageErrorf(cmd,
				"exactly one of --max-unavailable and --min-available must be specified")
		}

		spec := map[string]any{}
		for field, value := range map[string]string{
			"maxUnavailable": maxUnavailable,
			"minAvailable":   minAvailable,
		} {
			if value == "" {
				continue
			}
			if spec[field], err = amount(value); err != nil {
				return cmdutil.UsageErrorf(cmd, "%s: %s", field, err)
			}
		}

		if selector != "" {
			parsed, err := metav1.ParseToLabelSelector(selector)
			if err != nil {
				return cmdutil.UsageErrorf(cmd, "--selector: %s", err)
			}
			if spec["selector"], err = runtime.DefaultUnstructuredConverter.
				ToUnstructured(parsed); err != nil {
				return err
			}
		} else {
			workload, err := c.one(target)
			if err != nil {
				return err
			}
			spec["targetRef"] = map[string]any{
				"apiVersion": workload.GetAPIVersion(),
				"kind":       workload.GetKind(),
				"name":       workload.GetName(),
			}
		}

		budget, err := c.object(
			schema.GroupKind{Group: "policy.kruise.io", Kind: "PodUnavailableBudget"}, name)
		if err != nil {
			return err
		}

		budget.Object["spec"] = spec
		return c.finish(cmd, budget)
	}

	return cmd
}

// amount parses a number of pods or a percentage, and returns it as documents hold it.
func amount(text string) (any, error) {
	value := intstr.Parse(text)
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, 100, true)
	if err != nil || n < 0 || value.Type == intstr.String && n > 100 {
		return nil, fmt.Errorf("%q is neither a number of pods nor a percentage from 0%% to 100%%", text)
	}

	if value.Type == intstr.Int {
		return int64(value.IntVal), nil
	}
	return value.StrVal, nil
}
