// Package restart implements the command that restarts containers of running pods. It creates
// ContainerRecreateRequests and follows them to their end.
package restart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/pods"
	"github.com/afloat-project/afloat/internal/plugin/recreate"
	"github.com/afloat-project/afloat/internal/plugin/terminal"
)

// patience bounds how long the command follows a request. It is longer than the deadline of the request,
// after which the manager ends the request.
const patience = 6 * time.Minute

// longest bounds how much of a pod's name goes into the name of its request.
const longest = 240

// command holds the flags of the command.
type command struct {
	cmdutil.Factory
	genericiooptions.IOStreams
	flags    *change.Flags
	request  recreate.Flags
	parallel int
	wait     bool
	timeout  time.Duration

	// suffix makes the names of requests unique, and every is the interval at which requests are polled.
	suffix func() string
	every  time.Duration

	options change.Options
	printer printers.ResourcePrinter
	lock    sync.Mutex // guards the output
}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, func() string { return rand.String(5) }, time.Second)
}

func newCommand(
	f cmdutil.Factory, streams genericiooptions.IOStreams, suffix func() string, every time.Duration,
) *cobra.Command {
	c := &command{
		Factory:   f,
		IOStreams: streams,
		flags:     change.NewFlags("created"),
		suffix:    suffix,
		every:     every,
	}
	cmd := &cobra.Command{
		Use:                   "restart (POD | TYPE/NAME)... [--container=CONTAINER]...",
		DisableFlagsInUseLine: true,
		Short:                 "Restart containers of running pods, and wait until they serve again",
		Long: templates.LongDesc(`
			Restart containers of a pod, or of all pods of a workload: each pod keeps its name, node, address and volumes. It is done by a
			ContainerRecreateRequest for each pod, which takes the pod out of service first. Pods of a workload are restarted one after
			the other, or --parallel at a time, and no further one after the first failure. To restart pods by a rollout of their
			workload, with its own strategy, use rollout restart.`),
		Example: templates.Examples(`
			# Restart all containers of a pod
			kubectl afloat restart web-7

			# Restart container app in all pods of a CloneSet, three at a time
			kubectl afloat restart clone/web -c app --parallel=3

			# Show the requests that would be made
			kubectl afloat restart clone/web -c app --dry-run=server -o yaml`),
		ValidArgsFunction: completion.PodResourceNameCompletionFunc(f),
		RunE:              c.run,
	}

	c.flags.Add(cmd)
	c.request.Add(cmd.Flags(), "container", "c")
	cmd.Flags().IntVar(&c.parallel, "parallel", 1, "How many pods of a workload are restarted at a time.")
	cmd.Flags().BoolVar(&c.wait, "wait", true,
		"Wait until the containers have restarted. If false, all requests are made at once and left alone.")
	cmd.Flags().DurationVar(&c.timeout, "timeout", patience, "For how long one pod is waited for.")
	return cmd
}

func (c *command) run(cmd *cobra.Command, args []string) (err error) {
	switch {
	case len(args) == 0:
		return cmdutil.UsageErrorf(cmd, "a pod or a workload is required")
	case c.parallel < 1:
		return cmdutil.UsageErrorf(cmd, "--parallel must be at least 1")
	case c.timeout <= 0:
		return cmdutil.UsageErrorf(cmd, "--timeout must be above 0")
	}

	if err := c.request.Validate(); err != nil {
		return cmdutil.UsageErrorf(cmd, "%s", err)
	}

	if c.options, c.printer, err = c.flags.Options(cmd); err != nil {
		return err
	}

	c.wait = c.wait && c.options.DryRun == cmdutil.DryRunNone
	if c.flags.Print.OutputFlagSpecified() { // the output contains only objects then
		c.Out, c.ErrOut = c.ErrOut, c.Out
	}

	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	infos, err := c.NewBuilder().Unstructured().ContinueOnError().
		NamespaceParam(namespace).DefaultNamespace().
		ResourceNames("pods", args...).
		Flatten().Do().Infos()

	errs := []error{err}
	for _, info := range infos {
		document, err := change.Document(info)
		if err == nil {
			err = c.all(cmd.Context(), document)
		}
		errs = append(errs, err)
	}

	return utilerrors.NewAggregate(errs)
}

func (c *command) say(format string, a ...any) {
	c.lock.Lock()
	defer c.lock.Unlock()
	fmt.Fprintln(c.Out, terminal.Plain(fmt.Sprintf(format, a...)))
}

// all restarts the pod or, if the object is a workload, its pods.
func (c *command) all(ctx context.Context, object *unstructured.Unstructured) error {
	if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
			return fmt.Errorf("reading pod %s: %w", object.GetName(), err)
		}
		return c.one(ctx, pod)
	}

	own, err := pods.Of(ctx, c, object)
	if err != nil {
		return err
	}

	var active []*corev1.Pod
	for i := range own {
		if pods.Active(&own[i]) {
			active = append(active, &own[i])
		}
	}
	if len(active) == 0 {
		return fmt.Errorf("%s %s has no active pods", object.GetKind(), object.GetName())
	}

	begun, err := c.each(ctx, active)
	if left := len(active) - begun; err != nil && left > 0 {
		return fmt.Errorf("%w\n%d of the %d pods of %s %s were left alone because of that",
			err, left, len(active), object.GetKind(), object.GetName())
	}
	return err
}

// each restarts pods, as many at a time as the user allows. After a failure it begins no further pod, and
// waits for those under way. begun is the number of pods that it began to restart.
func (c *command) each(ctx context.Context, all []*corev1.Pod) (begun int, err error) {
	places := make(chan struct{}, c.parallel)
	var group sync.WaitGroup
	var lock sync.Mutex
	var errs []error

	failed := func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(errs) > 0
	}

	for _, pod := range all {
		places <- struct{}{}
		if failed() {
			break
		}

		begun++
		group.Go(func() {
			defer func() { <-places }()
			if err := c.current(ctx, pod); err != nil {
				lock.Lock()
				errs = append(errs, err)
				lock.Unlock()
			}
		})
	}

	group.Wait()
	return begun, errors.Join(errs...)
}

// current reads a pod of a workload again and restarts it, unless the pod is gone or not running by now.
func (c *command) current(ctx context.Context, before *corev1.Pod) error {
	client, err := c.KubernetesClientSet()
	if err != nil {
		return err
	}

	pod, err := client.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return fmt.Errorf("reading pod %s: %w", before.Name, err)
	}

	switch {
	case absent || pod.UID != before.UID || !pods.Active(pod):
		c.say("pod/%s is gone: nothing to restart", before.Name)
		return nil
	case pod.Status.Phase != corev1.PodRunning:
		c.say("pod/%s is %s: nothing to restart", before.Name, pod.Status.Phase)
		return nil
	}
	return c.one(ctx, pod)
}

// one restarts containers of one pod.
func (c *command) one(ctx context.Context, pod *corev1.Pod) error {
	name := pod.Name[:min(len(pod.Name), longest)] + "-" + c.suffix()
	request, err := c.request.Request(c, pod, name)
	if err != nil {
		return err
	}

	created, err := change.Create(c, c.options, request)
	if err != nil {
		return fmt.Errorf("asking to restart containers of pod %s: %w", pod.Name, err)
	}

	if err := c.print(created); err != nil || !c.wait {
		return err
	}

	end := time.After(c.timeout)
	if err := c.follow(ctx, created, end); err != nil || !podutils.IsPodReady(pod) {
		return err
	}
	return c.serves(ctx, pod, end)
}

// serves waits until a pod that was ready is ready again. The request keeps the pod out of service until the
// request has ended.
func (c *command) serves(ctx context.Context, before *corev1.Pod, end <-chan time.Time) error {
	client, err := c.KubernetesClientSet()
	if err != nil {
		return err
	}

	tick := time.NewTicker(c.every)
	defer tick.Stop()

	for {
		pod, err := client.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && (pod.UID != before.UID || !pods.Active(pod)):
			c.say("pod/%s is gone", before.Name)
			return nil
		case err != nil:
			return fmt.Errorf("reading pod %s: %w", before.Name, err)
		case podutils.IsPodReady(pod):
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return fmt.Errorf("containers of pod %s have restarted, but pod %s is not ready again after %s",
				before.Name, before.Name, c.timeout)
		case <-tick.C:
		}
	}
}

func (c *command) print(object *unstructured.Unstructured) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.flags.Print.OutputFlagSpecified() {
		return c.printer.PrintObj(object, c.ErrOut) // run has exchanged the two
	}
	return c.printer.PrintObj(object, c.Out)
}

// follow prints the progress of the request until it has ended.
func (c *command) follow(
	ctx context.Context, request *unstructured.Unstructured, end <-chan time.Time,
) error {
	mapping, err := change.Mapping(c, recreate.Kind)
	if err != nil {
		return err
	}

	client, err := c.DynamicClient()
	if err != nil {
		return err
	}

	pod, _, _ := unstructured.NestedString(request.Object, "spec", "podName")
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for said := ""; ; {
		now, err := client.Resource(mapping.Resource).Namespace(request.GetNamespace()).
			Get(ctx, request.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("request %s for pod %s was deleted", request.GetName(), pod)
		} else if err != nil {
			return fmt.Errorf("following request %s for pod %s: %w", request.GetName(), pod, err)
		}

		text, over, failed := progress(now)
		if text != said {
			c.say("pod/%s: %s", pod, text)
			said = text
		}

		switch {
		case over && failed:
			return fmt.Errorf("containers of pod %s have not restarted: %s", pod, text)
		case over:
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return fmt.Errorf("request %s for pod %s has not ended after %s: %s",
				request.GetName(), pod, c.timeout, text)
		case <-tick.C:
		}
	}
}

// progress describes how far a request is. over reports whether it has ended, and failed whether one of its
// containers has not succeeded.
func progress(request *unstructured.Unstructured) (text string, over, failed bool) {
	status, _, _ := unstructured.NestedMap(request.Object, "status")
	completed, _, _ := unstructured.NestedString(status, "completionTime")
	over = completed != ""

	states, _, _ := unstructured.NestedSlice(status, "containerRecreateStates")
	succeeded := map[string]bool{}
	var parts []string
	for _, raw := range states {
		state, _ := raw.(map[string]any)
		name, _, _ := unstructured.NestedString(state, "name")
		phase, _, _ := unstructured.NestedString(state, "phase")
		message, _, _ := unstructured.NestedString(state, "message")
		succeeded[name] = phase == "Succeeded"

		part := name + " " + phase
		if message != "" {
			part += " (" + message + ")"
		}
		parts = append(parts, part)
	}

	wanted, _, _ := unstructured.NestedSlice(request.Object, "spec", "containers")
	for _, raw := range wanted {
		container, _ := raw.(map[string]any)
		name, _, _ := unstructured.NestedString(container, "name")
		failed = failed || !succeeded[name]
	}

	if message, _, _ := unstructured.NestedString(status, "message"); message != "" {
		parts = append(parts, message)
	}
	if len(parts) == 0 {
		parts = []string{"waiting for the node daemon"}
	}

	return strings.Join(parts, ", "), over, failed
}
