package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/utils/clock"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// Explain describes why the rollout of an object waits, by the feature gates and flags of the manager in
// managerNamespace.
type Explain func(ctx context.Context, info *resource.Info, managerNamespace string) (string, error)

const (
	// patience is the time that the line may stay unchanged before the command asks for the reason, and the
	// interval at which it asks again.
	patience = 5 * time.Second
	// A watch that ended, or a request that failed, is retried after pause. The delay doubles with each
	// failure, and the command gives up after tries retries.
	pause, tries = time.Second, 8
)

// Status is the command that follows a rollout until it is done (OPS-140).
type Status struct {
	// Explain describes why the rollout waits, once the line has not changed for some seconds. If it is nil,
	// no reason is shown.
	Explain Explain
	Clock   clock.Clock

	workload.Selection
	watch, detail bool
	timeout       time.Duration
	revision      int64
	// managerNamespace is the namespace in which the manager is installed.
	managerNamespace string

	factory cmdutil.Factory
	streams genericiooptions.IOStreams
	screen  *screen
	// The following fields hold what the screen shows.
	progress Progress
	details  string
	reason   string
}

// NewStatus returns the command with its default values.
func NewStatus(f cmdutil.Factory, streams genericiooptions.IOStreams) *Status {
	return &Status{
		Clock:   clock.RealClock{},
		watch:   true,
		factory: f,
		streams: streams,
		screen:  newScreen(streams.Out),
	}
}

// Command returns the cobra command.
func (s *Status) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:                   "status (TYPE NAME | TYPE/NAME) [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Follow a rollout until it is done",
		Long: templates.LongDesc(`
			Follow the rollout of one workload until it is done.

			The rollout of a workload with a partition is done when as many pods are updated as the partition allows. A rollout that is paused
			before that
			is waited for. It is an error if the workload is deleted meanwhile, if its progress deadline is exceeded, if the time is over, and if
			its pods
			are updated only when somebody deletes them.`),
		Example: templates.Examples(`
			# Follow the rollout of a CloneSet
			kubectl afloat rollout status cloneset/web

			# Wait for five minutes at most, and name the pods that are updated
			kubectl afloat rollout status asts/db --timeout=5m --detail

			# Only look
			kubectl afloat rollout status ads/agent --watch=false`),
		ValidArgsFunction: completion.SpecifiedResourceTypeAndNameNoRepeatCompletionFunc(s.factory, followed),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.revision < 0 {
				return fmt.Errorf("revision must be a positive integer: %v", s.revision)
			}

			info, err := s.One(s.factory, args)
			if err != nil {
				return err
			}

			if err := s.follow(cmd.Context(), info); err != nil {
				return fmt.Errorf("%s: %w", change.Name(info), err)
			}
			return nil
		},
	}

	s.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&s.managerNamespace, "manager-namespace", installation.Namespace,
		"the namespace that the manager is installed in, whose gates and flags count for why it waits")
	flags.BoolVarP(&s.watch, "watch", "w", s.watch, "Watch the status of the rollout until it's done.")
	flags.Int64Var(&s.revision, "revision", 0,
		"Pin to a specific revision for showing its status. Defaults to 0 (last revision).")
	flags.DurationVar(&s.timeout, "timeout", 0,
		"The length of time to wait before ending watch, zero means never. Any other values should contain a time unit (e.g. 1s, 2m, 3h).")
	flags.BoolVarP(&s.detail, "detail", "d", false,
		"Name the updated pods, those that are ready and those that are not.")

	return cmd
}

// errDeleted is returned if the object is deleted while it is followed.
var errDeleted = errors.New("object has been deleted")

// answer is the answer of the API server to a request for a watch.
type answer struct {
	// object is the object, if it was read before the watch.
	object *unstructured.Unstructured
	// watcher delivers the later events of the object.
	watcher watch.Interface
	err     error
}

// ask starts to watch the object after the given version. If no version is given, it reads the object first.
func ask(ctx context.Context, client dynamic.ResourceInterface, name, version string) (a answer) {
	if version == "" {
		if a.object, a.err = client.Get(ctx, name, metav1.GetOptions{}); a.err != nil {
			return a
		}
		version = a.object.GetResourceVersion()
	}

	a.watcher, a.err = client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", name).String(),
		ResourceVersion: version,
	})
	return a
}

// follow shows the progress of an object until it is done. Requests run in the background, so that none of
// them delays the end after the timeout.
func (s *Status) follow(ctx context.Context, info *resource.Info) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watch and all pending requests
	defer cancel()

	object, err := change.Document(info)
	if err != nil {
		return err
	}

	var late, retry <-chan time.Time
	if s.timeout > 0 {
		late = s.Clock.After(s.timeout)
	}

	if done, err := s.look(ctx, object); err != nil || done || !s.watch {
		return err
	}

	dynamicClient, err := s.factory.DynamicClient()
	if err != nil {
		return err
	}

	client := dynamicClient.Resource(info.Mapping.Resource).Namespace(info.Namespace)
	stuck := s.Clock.NewTimer(patience)
	defer stuck.Stop()

	answers, reasons := make(chan answer, 1), make(chan string, 1)
	go func() { answers <- ask(ctx, client, info.Name, info.ResourceVersion) }()

	var events <-chan watch.Event
	failures := 0
	for {
		var newer *unstructured.Unstructured
		var failed error // why the object is not being watched

		select {
		case <-late:
			return fmt.Errorf("timed out after %v: %s", s.timeout, s.progress.Line)
		case <-ctx.Done():
			return ctx.Err()
		case <-stuck.C():
			of := *info
			go func() { reasons <- s.explain(ctx, &of) }()
		case s.reason = <-reasons:
			s.show()
			stuck.Reset(patience)
		case <-retry:
			go func() { answers <- ask(ctx, client, info.Name, "") }()
		case a := <-answers:
			if newer, failed = a.object, a.err; failed == nil {
				events = a.watcher.ResultChan()
			} else if apierrors.IsNotFound(failed) {
				return errDeleted
			}
		case event, open := <-events:
			switch {
			case !open:
				failed = errors.New("the API server ended it")
			case event.Type == watch.Error:
				failed = apierrors.FromObject(event.Object)
			case event.Type == watch.Deleted:
				return errDeleted
			case event.Type != watch.Bookmark:
				newer, _ = event.Object.(*unstructured.Unstructured)
			}
		}

		if newer != nil {
			line := s.progress.Line
			if done, err := s.next(ctx, info, newer); err != nil || done {
				return err
			}
			if failures = 0; s.progress.Line != line {
				stuck.Reset(patience)
			}
		}

		if failed != nil {
			if events, failures = nil, failures+1; failures > tries {
				return fmt.Errorf("watching failed %d times: %w", tries, failed)
			}
			retry = s.Clock.After(pause << (failures - 1))
		}
	}
}

// next shows a newer version of the object, and reports whether the rollout is done.
func (s *Status) next(
	ctx context.Context, info *resource.Info, newer *unstructured.Unstructured,
) (done bool, err error) {
	before, err := change.Document(info)
	if err != nil {
		return false, err
	}

	if newer.GetUID() != before.GetUID() {
		return false, fmt.Errorf("%w, and another one of its name was made", errDeleted)
	}

	if err := info.Refresh(newer, true); err != nil {
		return false, err
	}

	return s.look(ctx, newer)
}

// look shows the progress of the object, and reports whether the rollout is done.
func (s *Status) look(ctx context.Context, object *unstructured.Unstructured) (done bool, err error) {
	p, err := ProgressOf(object)
	if err != nil {
		return false, err
	}

	if s.revision > 0 && observed(object) {
		running, err := running(ctx, s.factory, object)
		if err != nil {
			return false, err
		}

		if running.Number != s.revision {
			return false, fmt.Errorf("desired revision (%d) is different from the running revision (%d)",
				s.revision, running.Number)
		}
	}

	if s.detail {
		if s.details, err = details(ctx, s.factory, object); err != nil {
			return false, err
		}
	}

	if p.Line != s.progress.Line {
		s.reason = ""
	}

	s.progress = p
	s.show()
	return p.Done, nil
}

// explain returns the reason why the rollout waits, or why it is not known.
func (s *Status) explain(ctx context.Context, info *resource.Info) string {
	if s.Explain == nil {
		return ""
	}

	reason, err := s.Explain(ctx, info, s.managerNamespace)
	if err != nil {
		return "Why it waits is not known: " + err.Error()
	}

	return reason
}

func (s *Status) show() {
	below := s.details
	if below != "" && s.reason != "" {
		below += "\n"
	}
	s.screen.show(s.progress, below+s.reason)
}
