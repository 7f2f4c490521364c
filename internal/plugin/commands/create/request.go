package create

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/recreate"
)

func newRequest(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	var pod string
	var flags recreate.Flags
	cmd := &cobra.Command{
		Use:                   "ContainerRecreateRequest NAME --pod=POD [--containers=a,b]",
		Aliases:               []string{"containerrecreaterequest", "crr"},
		DisableFlagsInUseLine: true,
		Short:                 "Create a request to restart containers of a pod",
		Long: templates.LongDesc(`Create a ContainerRecreateRequest: containers of a running pod are stopped and start anew, and the pod stays.
			The command restart does the same and waits for the end.`),
		Example: templates.Examples(`
			# Restart all containers of a pod
			kubectl afloat create crr again --pod=web-7

			# Restart two of them, and count them as restarted when they have run for a minute
			kubectl afloat create crr again --pod=web-7 --containers=app,log --minStartedSeconds=60`),
	}

	c := newCreation(f, streams, cmd)
	cmd.Flags().StringVarP(&pod, "pod", "p", "", "The pod whose containers are recreated.")
	flags.Add(cmd.Flags(), "containers", "c")

	podNames := func(_ *cobra.Command, _ []string, complete string) ([]string, cobra.ShellCompDirective) {
		return completion.CompGetResource(f, "pod", complete), cobra.ShellCompDirectiveNoFileComp
	}
	cmdutil.CheckErr(cmd.RegisterFlagCompletionFunc("pod", podNames))

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := name(cmd, args)
		if err != nil {
			return err
		}
		if pod == "" {
			return cmdutil.UsageErrorf(cmd, "--pod must be specified")
		}
		if err := flags.Validate(); err != nil {
			return cmdutil.UsageErrorf(cmd, "%s", err)
		}

		namespace, err := c.namespace()
		if err != nil {
			return err
		}
		client, err := c.KubernetesClientSet()
		if err != nil {
			return err
		}

		found, err := client.CoreV1().Pods(namespace).Get(cmd.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		request, err := flags.Request(c, found, name)
		if err != nil {
			return err
		}

		return c.finish(cmd, request)
	}

	return cmd
}
