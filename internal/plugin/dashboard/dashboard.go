// Package dashboard implements the command "dashboard": a page on loopback that shows rollouts while they run.
//
// The page is made of the same parts as the other commands: the manager's planners say what is decided about
// each pod and which waves are to come, and every change is planned before it is applied. It reads and writes
// with the rights of the user's own kubeconfig, and nothing is installed in the cluster.
//
// The server answers the browser of that user alone. It listens on loopback, asks for a token that only the
// printed address contains, and refuses names of other hosts, so that neither pages of other origins nor names
// that are bound to another address reach it (guard.go). The sources of the page are in ui, and what is built
// of them is in assets.
package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// options holds the options of the command.
type options struct {
	genericiooptions.IOStreams
	port             uint16
	managerNamespace string
	context          string // the one that the user chose for this command, if any
}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{IOStreams: streams}
	cmd := &cobra.Command{
		Use:                   "dashboard [KIND/NAME]",
		DisableFlagsInUseLine: true,
		Short:                 "Show rollouts on a page while they run",
		Long: templates.LongDesc(`
			Serve a page that shows workloads and their rollouts while they run: each pod, what it waits for, and the waves that are to come. It can
			pause, resume, undo and restart, and it shows the plan of every change before the change is applied.

			The page is served on this machine alone, at an address that contains a secret. It reads and writes with your own rights, and ends with this
			command.`),
		Example: templates.Examples(`
			# Show all workloads
			kubectl afloat dashboard

			# Show one rollout, at a port of your choice
			kubectl afloat dashboard clone/web --port 8080`),
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completion.ResourceTypeAndNameCompletionFunc(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if chosen := cmd.Flag("context"); chosen != nil {
				o.context = chosen.Value.String()
			}
			return o.run(ctx, f, args)
		},
	}

	cmd.Flags().Uint16Var(&o.port, "port", 0, "the port on loopback; 0 means any that is free")
	cmd.Flags().StringVar(&o.managerNamespace, "manager-namespace", installation.Namespace,
		"the namespace that the manager is installed in, whose gates and flags count")
	return cmd
}

// run serves the page until the context ends.
func (o *options) run(ctx context.Context, f cmdutil.Factory, args []string) error {
	s, err := newServer(ctx, f, o.managerNamespace)
	if err != nil {
		return err
	}

	s.cluster = cmp.Or(o.context, s.cluster) // the configuration knows the one that is chosen in the file

	path := "/"
	if len(args) == 1 {
		if path, err = s.pathOf(ctx, args[0]); err != nil {
			return err
		}
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(o.port))))
	if err != nil {
		return fmt.Errorf("listening on loopback: %w", err)
	}

	page, err := newGuard(listener.Addr().String(), s.routes())
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "The page is at %s\nIt ends with this command.\n", page.address(path))

	server := &http.Server{
		Handler:           page,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		// Streams end with the command.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	end := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer end()

	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}

// pathOf returns the path of the page about the object that an argument names, such as clone/web. It returns an
// error if there is no such object.
func (s *server) pathOf(ctx context.Context, argument string) (string, error) {
	targets, err := explain.Targets([]string{argument})
	if err != nil {
		return "", err
	}
	kind, err := s.reader.Resolve(targets[0].Kind)
	if err != nil {
		return "", err
	}
	one, err := s.object(kind, types.NamespacedName{Namespace: s.namespace, Name: targets[0].Name})
	if err != nil {
		return "", err
	}
	if _, err := s.get(ctx, one); err != nil {
		return "", err
	}

	namespace := one.Namespace
	if namespace == "" {
		namespace = "-"
	}
	return "/workload/" + strings.Join([]string{one.resource(), namespace, one.Name}, "/"), nil
}

// object describes an object of one of the kinds that the page shows.
func (s *server) object(kind schema.GroupKind, name types.NamespacedName) (*object, error) {
	if !shown(kind) {
		return nil, fmt.Errorf("the page does not show objects of the kind %s", kind)
	}
	mapping, err := s.mapper.RESTMapping(kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	o := &object{NamespacedName: name, mapping: mapping}
	if !o.namespaced() {
		o.Namespace = ""
	}
	return o, nil
}
