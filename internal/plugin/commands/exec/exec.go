// Package exec implements kubectl's command exec for pods of all workloads, and for sidecars that are
// upgraded hot (OPS-163).
package exec

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectlexec "k8s.io/kubectl/pkg/cmd/exec"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/pods"
)

// patience is how long the command waits for a running pod.
const patience = 60 * time.Second

// command holds the flags of the command.
type command struct {
	kubectlexec.ExecOptions
	cmdutil.Factory
	sidecar string
	// every is the interval at which the command polls for a running pod.
	every time.Duration
}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, &kubectlexec.DefaultRemoteExecutor{}, time.Second)
}

func newCommand(
	f cmdutil.Factory, streams genericiooptions.IOStreams, executor kubectlexec.RemoteExecutor,
	every time.Duration,
) *cobra.Command {
	c := &command{
		Factory: f,
		every:   every,
		ExecOptions: kubectlexec.ExecOptions{
			StreamOptions: kubectlexec.StreamOptions{IOStreams: streams},
			Executor:      executor,
		},
	}
	cmd := &cobra.Command{
		Use: "exec (POD | TYPE/NAME) [-c CONTAINER | -S SIDECAR] [flags] -- COMMAND [args...]",

		DisableFlagsInUseLine: true,
		Short:                 "Execute a command in a container",
		Long: templates.LongDesc(`
			Execute a command in a container of a pod, or of a running pod of a workload or service. Without -c it is the container that
			annotation kubectl.kubernetes.io/default-container of the pod names, or the first. A sidecar that a SidecarSet upgrades hot
			has two containers in the pod: -S chooses the one that works at present.`),
		Example: templates.Examples(`
			# Run date in the first container of a pod
			kubectl afloat exec web-7 -- date

			# A shell in container app of a running pod of a CloneSet
			kubectl afloat exec -it clone/web -c app -- sh

			# Run nginx -t in that container of the sidecar mesh that works at present
			kubectl afloat exec web-7 -S mesh -- nginx -t`),
		ValidArgsFunction: completion.PodResourceNameCompletionFunc(f),
		RunE:              c.run,
	}

	cmdutil.AddPodRunningTimeoutFlag(cmd, patience)
	cmdutil.AddJsonFilenameFlag(cmd.Flags(), &c.Filenames, "to use to exec into the resource")
	cmdutil.AddContainerVarFlags(cmd, &c.ContainerName, "")
	cmdutil.CheckErr(cmd.RegisterFlagCompletionFunc("container", completion.ContainerCompletionFunc(f)))
	cmd.Flags().StringVarP(&c.sidecar, "sidecarset", "S", "",
		"The sidecar whose working container is meant, if it is upgraded hot.")
	cmd.Flags().BoolVarP(&c.Stdin, "stdin", "i", false, "Pass stdin to the container")
	cmd.Flags().BoolVarP(&c.TTY, "tty", "t", false, "Stdin is a TTY")
	cmd.Flags().BoolVarP(&c.Quiet, "quiet", "q", false, "Only print output from the remote session")
	cmd.MarkFlagsMutuallyExclusive("container", "sidecarset")
	return cmd
}

func (c *command) run(cmd *cobra.Command, args []string) error {
	if err := c.Complete(c.Factory, cmd, args, cmd.ArgsLenAtDash()); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}

	pod, err := c.pod(cmd.Context())
	if err != nil {
		return err
	}

	c.PodName, c.Namespace = pod.Name, pod.Namespace

	if c.sidecar != "" {
		if c.ContainerName, err = working(pod, c.sidecar); err != nil {
			return err
		}
		if !c.Quiet {
			fmt.Fprintf(c.ErrOut, "Container %q works for sidecar %q\n", c.ContainerName, c.sidecar)
		}
	}

	return c.Run()
}

// pod waits for a running pod of the object that the arguments name, and returns it.
func (c *command) pod(ctx context.Context) (*corev1.Pod, error) {
	builder := c.NewBuilder().Unstructured().FilenameParam(c.EnforceNamespace, &c.FilenameOptions).
		NamespaceParam(c.Namespace).DefaultNamespace()
	if c.ResourceName != "" {
		builder = builder.ResourceNames("pods", c.ResourceName)
	}

	infos, err := builder.Flatten().Do().Infos()
	if err != nil {
		return nil, err
	}

	if len(infos) != 1 {
		return nil, fmt.Errorf("cannot exec into %d objects at a time", len(infos))
	}

	object, err := change.Document(infos[0])
	if err != nil {
		return nil, err
	}

	var found []corev1.Pod
	var running *corev1.Pod
	err = wait.PollUntilContextTimeout(ctx, c.every, c.GetPodTimeout, true,
		func(context.Context) (bool, error) {
			if found, err = c.candidates(ctx, object); err != nil {
				return false, err
			}
			running = first(found)
			completed := slices.IndexFunc(found, func(pod corev1.Pod) bool { return !over(&pod) }) < 0
			if len(found) > 0 && completed {
				return false, fmt.Errorf("cannot exec into a container in a completed pod; %s", phases(found))
			}
			return running != nil, nil
		})
	if wait.Interrupted(err) {
		return nil, fmt.Errorf("%s has no running pod after %s; %s",
			infos[0].ObjectName(), c.GetPodTimeout, phases(found))
	}
	return running, err
}

// candidates returns the pod itself, or the pods of a workload or service.
func (c *command) candidates(ctx context.Context, object *unstructured.Unstructured) ([]corev1.Pod, error) {
	client, err := c.KubernetesClientSet()
	if err != nil {
		return nil, err
	}

	in := client.CoreV1().Pods(object.GetNamespace())
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		pod, err := in.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []corev1.Pod{*pod}, nil
	case schema.GroupKind{Kind: "Service"}:
		selector, _, err := unstructured.NestedStringMap(object.Object, "spec", "selector")
		if err != nil || len(selector) == 0 {
			return nil, fmt.Errorf("service %s has no selector", object.GetName())
		}
		list, err := in.List(ctx, metav1.ListOptions{
			LabelSelector: labels.SelectorFromSet(selector).String(),
		})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}

	return pods.Of(ctx, c, object)
}

// first returns the running pod that kubectl would choose, or nil if no pod is running.
func first(all []corev1.Pod) *corev1.Pod {
	var running []*corev1.Pod
	for i := range all {
		if all[i].Status.Phase == corev1.PodRunning {
			running = append(running, &all[i])
		}
	}

	if len(running) == 0 {
		return nil
	}

	sort.Sort(sort.Reverse(podutils.ActivePods(running)))
	return running[0]
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func phases(all []corev1.Pod) string {
	var each []string
	for i := range all {
		each = append(each, fmt.Sprintf("%s is %s", all[i].Name, all[i].Status.Phase))
	}
	if len(each) == 0 {
		return "there are no pods"
	}
	return strings.Join(each, ", ")
}

// working returns the name of the container that works for a sidecar at present.
func working(pod *corev1.Pod, sidecar string) (string, error) {
	known, err := sidecarset.ReadWorkingContainers(pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer])
	if err != nil {
		return "", fmt.Errorf("annotation %s of pod %s: %w",
			pub.SidecarSetWorkingHotUpgradeContainer, pod.Name, err)
	}

	container, ok := known[sidecar]
	if !ok {
		return "", fmt.Errorf(
			"pod %s has no sidecar %q that is upgraded hot: its annotation %s does not name it",
			pod.Name, sidecar, pub.SidecarSetWorkingHotUpgradeContainer)
	}

	return container, nil
}
