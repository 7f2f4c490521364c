// Package takeover replaces the manager of OpenKruise by that of the project, and back (OPS-110). It writes
// no pods: the new manager reads what the old one left, and two managers never act at once.
//
// # Invariants
//
//   - What is replaced or removed is in the backup before anything is changed.
//   - A manager starts only after all pods of the other one are gone and its lock is free.
//   - Every step looks at the state of the cluster and can be repeated. After an interruption, the user runs
//     the command again.
//   - Pods and objects of users are never written, with two exceptions on the way back. If definitions lack a version in
//     which objects are stored, these are stored again, unchanged. Runs of AdvancedCronJobs lose a finalizer that only
//     Afloat's manager takes off.
package takeover

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

var long = templates.LongDesc(`
	Put the manager of Afloat in the place of that of OpenKruise 1.x, and back. Workloads and pods stay as they are.

	It looks at the cluster first: which manager runs with which flags, which kinds are in use, which of them Afloat does not serve,
	and what the new manager would do with each workload. Then it saves what it replaces into a folder, stops the old manager, waits
	until its pods are gone and its lock is free, applies the manifests of Afloat, waits until the manager serves, and compares all pods
	of workloads with what they were before.

	From the stop until the new manager serves, nobody acts: lost pods are not replaced, rollouts stand, and workloads of these kinds can
	neither be changed nor read in another version than the stored one. Pods can be created, but those that are created then get no
	sidecars and no subset: failurePolicy of the webhooks about them is Ignore for that time. The command says how long that was. Before it
	stops anything it lets a pod start with both images, so that a wrong name changes nothing.

	If it is interrupted, run it again: it goes on. With --back and the folder it puts the other manager back in the same way.`)

var example = templates.Examples(`
	# Say all that would be done, and change nothing
	kubectl afloat takeover --image registry/manager:1 --daemon-image registry/daemon:1 --dry-run

	# Do it
	kubectl afloat takeover --image registry/manager:1 --daemon-image registry/daemon:1

	# Go back to what was there before
	kubectl afloat takeover --back --backup afloat-takeover-prod-20260102-150405`)

// Values of --dry-run.
const (
	wet    = "none"
	dry    = "client"
	server = "server"
)

// takeover is one run of the command.
type takeover struct {
	genericiooptions.IOStreams
	choice        installation.Choice
	backup        string
	dryRun        string
	fieldManager  string
	yes           bool
	allowUnserved bool
	allowManaged  bool
	skipCheck     bool
	back          bool
	timeout       time.Duration

	client client.Client
	ask    asking
	// holder names this run in the Lease that allows only one run to write at a time. turnFor is the duration
	// of that Lease, and a write renews it first if that was not done for turnFresh.
	holder                         string
	turnFor, turnFresh, renewEvery time.Duration
	// cluster names the cluster in the name of the backup folder.
	cluster string
	// rehearse returns what the manager of the project would do with a workload.
	rehearse func(ctx context.Context, kind string, name types.NamespacedName) (*explain.Explanation, error)
	// flags are the flags that the manager of the project will have.
	flags []string
	now   func() time.Time
	// poll is the interval between two looks at the cluster.
	poll time.Duration
	// settle is how long API servers may take to notice a new storage version of a definition.
	settle time.Duration

	manifests []*unstructured.Unstructured
	steps     int
	// taken means that the manager is the project's already.
	taken         bool
	reachedStages []stage
	// foreign means that an unanswered foreign webhook has been reported.
	foreign bool
}

// New returns the takeover command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	t := &takeover{IOStreams: streams, now: time.Now, poll: 250 * time.Millisecond, settle: 10 * time.Second,
		turnFor: 20 * time.Second, turnFresh: 10 * time.Second, renewEvery: 5 * time.Second}
	cmd := &cobra.Command{
		Use:                   "takeover --image MANAGER --daemon-image DAEMON [--backup DIR] [--dry-run] | --back --backup DIR",
		DisableFlagsInUseLine: true,
		Short:                 "Put Afloat in the place of OpenKruise, or back",
		Long:                  long, Example: example,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.complete(f); err != nil {
				return err
			}
			if flag := cmd.Flag("context"); flag != nil && flag.Value.String() != "" {
				t.cluster = flag.Value.String()
			}
			return t.run(cmd.Context())
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&t.choice.Image, "image", "", "image of the manager, which all nodes can pull")
	flags.StringVar(&t.choice.DaemonImage, "daemon-image", "",
		"image of the node daemon, which all nodes can pull")
	flags.StringVar(&t.choice.Path, "manifests", "",
		"file or folder of manifests to be applied instead of those of this release")
	flags.StringVar(&t.choice.Namespace, "manager-namespace", "",
		"namespace of the manager; by default it is looked for")
	flags.StringVar(&t.backup, "backup", "",
		"folder for what is replaced; by default ./afloat-takeover-CONTEXT-TIME")
	flags.BoolVar(&t.back, "back", false, "put back what is in the folder of --backup")
	flags.BoolVar(&t.yes, "yes", false, "do not ask before changing anything")
	flags.BoolVar(&t.allowUnserved, "allow-unserved", false,
		"go on although kinds are in use that Afloat does not serve: nobody acts on their objects then")
	flags.BoolVar(&t.allowManaged, "allow-managed", false,
		"go on although a tool such as Argo CD or Flux manages the Deployment of the manager and may put it back at any time")
	flags.BoolVar(&t.skipCheck, "skip-image-check", false,
		"do not let a pod start with both images before the old manager is stopped")
	flags.StringVar(&t.dryRun, "dry-run", wet,
		"none, client or server: say what would be done and change nothing; with server, the default without a value, "+
			"the API server says whether it would take the manifests")
	flags.Lookup("dry-run").NoOptDefVal = server
	flags.DurationVar(&t.timeout, "timeout", 5*time.Minute,
		"how long to wait for each of: the end of the old manager, the start of the new one, the node daemons")
	cmdutil.AddFieldManagerFlagVar(cmd, &t.fieldManager, owner)
	cmdutil.CheckErr(cmd.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions([]string{wet, dry, server}, cobra.ShellCompDirectiveNoFileComp)))

	return cmd
}

// complete checks the flags and connects to the cluster.
func (t *takeover) complete(f cmdutil.Factory) error {
	if err := t.check(); err != nil {
		return err
	}

	config, err := f.ToRESTConfig()
	if err != nil {
		return err //nolint:wrapcheck // kubectl's words
	}

	config = rest.CopyConfig(config)
	// No client-side rate limit: every second counts while no manager serves, and API servers have their own.
	config.QPS = -1
	log.SetLogger(klog.Background()) // otherwise the library warns after half a minute that none is set
	// The client has a mapper of its own, which looks again for versions that the definitions add.
	if t.client, err = client.New(config, client.Options{Scheme: explain.Scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if t.ask, err = newAsking(config); err != nil {
		return err
	}

	host, _ := os.Hostname() // only shown to others
	t.holder = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.String(8))
	var reader *explain.Reader
	t.rehearse = func(
		ctx context.Context, kind string, name types.NamespacedName) (*explain.Explanation, error) {
		if reader == nil {
			mapper, err := f.ToRESTMapper()
			if err != nil {
				return nil, err //nolint:wrapcheck // kubectl's words
			}
			if reader, err = explain.NewReader(config, mapper, t.choice.Namespace); err != nil {
				return nil, err
			}
			reader.Rehearse(t.flags)
		}
		return reader.Why(ctx, groupKind(kind), name)
	}

	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return err //nolint:wrapcheck // kubectl's words
	}

	t.cluster = raw.CurrentContext
	return nil
}

func (t *takeover) check() error {
	switch {
	case t.dryRun != wet && t.dryRun != dry && t.dryRun != server:
		return fmt.Errorf("--dry-run: %q is none of none, client, server", t.dryRun)
	case t.back && t.backup == "":
		return errors.New("--back needs --backup: the folder that the takeover has written")
	case t.back && (t.choice.Image != "" || t.choice.DaemonImage != "" || t.choice.Path != ""):
		return errors.New("--back takes images and manifests from the folder: leave --image, --daemon-image and --manifests out")
	case !t.back && t.choice.Path == "" && (t.choice.Image == "" || t.choice.DaemonImage == ""):
		return errors.New("which images? --image and --daemon-image name those that the nodes can pull")
	}
	return nil
}

func (t *takeover) run(ctx context.Context) error {
	if t.back {
		return t.goBack(ctx)
	}
	return t.takeOver(ctx)
}

// takeOver runs all steps. Each step finds out itself what remains to be done.
func (t *takeover) takeOver(ctx context.Context) error {
	t.step("Look")
	s, err := t.look(ctx)
	if err != nil {
		return err
	}
	if err := t.reasonsAgainst(s); err != nil {
		return err
	}
	if err := t.managed(ctx, s.manager); err != nil {
		return err
	}
	if err := t.prepare(s); err != nil {
		return err
	}

	verbs, refused := t.preflight(ctx)
	if t.dryRun != wet {
		return errors.Join(t.announce(ctx, s, verbs), refused)
	}
	if refused != nil {
		return fmt.Errorf("nothing was changed: %w", refused)
	}
	if err := t.confirm(fmt.Sprintf("Until Afloat serves, nobody replaces lost pods, workloads of these kinds cannot be changed, and new pods "+
		"get no sidecars.\nStop the manager %s and put Afloat in its place?", s.source.image())); err != nil {
		return err
	}

	ctx, release, err := t.takeTurn(ctx)
	if err != nil {
		return err
	}

	defer release()
	if err := t.unchanged(ctx, s.manager); err != nil {
		return err
	}

	t.step("Back up")
	if err := t.save(ctx, s); err != nil {
		return err
	}

	if t.taken = installation.IsOurs(s.manager); !t.taken {
		t.step("Stop the other manager")
		if err := t.tryImages(ctx, s); err != nil {
			return err
		}
		if err := t.stop(ctx, placesOf(s.source.manager, s.lock, t.choice.Namespace)); err != nil {
			return err
		}
	}

	t.step("Apply")
	if err := t.applyAll(ctx, s); err != nil {
		return t.leave(ctx, err)
	}

	t.step("Verify")
	return t.verify(ctx, t.goOn)
}

// goOn adds advice to an error that occurs after the other manager was stopped.
func (t *takeover) goOn(err error) error {
	if t.back {
		return fmt.Errorf("%w\nnothing is lost: run the command again to go on", err)
	}
	return fmt.Errorf("%w\nnothing is lost: run the command again to go on, or go back with: kubectl afloat takeover --back --backup %s",
		err, t.backup)
}

func (t *takeover) step(what string) {
	t.steps++
	fmt.Fprintf(t.Out, "%d. %s\n", t.steps, what)
}

func (t *takeover) say(format string, args ...any) {
	fmt.Fprintf(t.Out, "   "+format+"\n", args...)
}

// confirm asks the user for confirmation.
func (t *takeover) confirm(question string) error {
	if t.yes {
		return nil
	}
	fmt.Fprintf(t.Out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(t.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed (--yes does not ask)")
	}
	return nil
}

// wait calls look repeatedly until it returns neither a missing item nor an error. It retries after all
// errors except a hopeless one.
func (t *takeover) wait(whole context.Context, what string,
	look func(context.Context) (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(whole, t.timeout)
	defer cancel()
	ticker := time.NewTicker(t.poll)
	defer ticker.Stop()
	said := ""
	for {
		missing, err := look(ctx)
		if err == nil && missing == "" {
			return nil
		}

		var final *hopeless
		if errors.As(err, &final) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if err != nil && ctx.Err() == nil {
			missing = err.Error()
		}
		if missing != "" && missing != said {
			said = missing
			fmt.Fprintf(t.ErrOut, "   waiting for %s: %s\n", what, missing)
		}

		select {
		case <-ctx.Done():
			if err := context.Cause(whole); err != nil {
				return fmt.Errorf("interrupted while waiting for %s: %s: %w", what,
					cmp.Or(said, "it was just asked for"), err)
			}
			return fmt.Errorf("waited %s for %s: %s", t.timeout, what, said)
		case <-ticker.C:
		}
	}
}

// hopeless is an error that waiting does not resolve.
type hopeless struct{ error }

func (h *hopeless) Unwrap() error { return h.error }

// folder returns the name of a new backup folder.
func (t *takeover) folder() string {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:@ `, r) {
			return '-'
		}
		return r
	}, t.cluster)
	return "." + string(os.PathSeparator) +
		strings.Join([]string{"afloat-takeover", name, t.now().UTC().Format("20060102-150405")}, "-")
}
