// Package get implements kubectl's command get, with a "get all" that lists the project's objects (OPS-164).
package get

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/get"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/registry"
)

const program = "kubectl afloat"

// resources returns the resources of "get all": those of the kinds that users may read, and Rollouts of
// OpenKruise. Those that the server does not serve are left out.
func resources() (names []string) {
	for _, kind := range registry.ForUsers() {
		names = append(names, kind.Definition())
	}
	return append(names, "rollouts.rollouts.kruise.io")
}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	cmd := get.NewCmdGet(program, f, streams)
	cmd.Use = strings.Replace(cmd.Use, "(TYPE", "(all | TYPE", 1)
	cmd.Long = templates.LongDesc(`
			Display one or many resources, as kubectl does; but "get all" lists the objects of Afloat's kinds that the server serves, from
			CloneSets to WorkloadSpreads, and with -w watches all of them.`)
	cmd.Example = templates.Examples(`
		# List Afloat's objects in a namespace, or in all
		kubectl afloat get all -n shop
		kubectl afloat get all -A

		# List CloneSets with their printed columns
		kubectl afloat get clonesets -o wide`)

	kubectl := cmd.Run
	cmd.Run = func(cmd *cobra.Command, args []string) {
		if len(args) != 1 || args[0] != "all" {
			kubectl(cmd, args)
			return
		}

		served, err := serves(f)
		cmdutil.CheckErr(err)
		if !cmdutil.GetFlagBool(cmd, "watch") && !cmdutil.GetFlagBool(cmd, "watch-only") {
			kubectl(cmd, []string{strings.Join(served, ",")})
			return
		}

		watch(f, streams, cmd, served)
	}
	return cmd
}

// serves returns those resources of "get all" that the server serves.
func serves(f cmdutil.Factory) ([]string, error) {
	mapper, err := f.ToRESTMapper()
	if err != nil {
		return nil, err
	}

	var served []string
	for _, name := range resources() {
		_, err := mapper.ResourceFor(schema.ParseGroupResource(name).WithVersion(""))
		switch {
		case err == nil:
			served = append(served, name)
		case !meta.IsNoMatchError(err):
			return nil, fmt.Errorf("asking whether the server serves %s: %w", name, err)
		}
	}

	if len(served) == 0 {
		return nil, fmt.Errorf("the server serves none of Afloat's kinds")
	}
	return served, nil
}

// watch watches all resources at once. kubectl watches only one resource, so one such command runs for each
// resource. The commands write whole lines, so their outputs do not mix within a line.
func watch(f cmdutil.Factory, streams genericiooptions.IOStreams, cmd *cobra.Command, resources []string) {
	var lock sync.Mutex
	var wait sync.WaitGroup
	for _, resource := range resources {
		one := get.NewCmdGet(program, f, genericiooptions.IOStreams{
			In:     streams.In,
			Out:    &lines{to: streams.Out, lock: &lock},
			ErrOut: &lines{to: streams.ErrOut, lock: &lock},
		})
		one.SetContext(cmd.Context())
		cmd.Flags().Visit(func(given *pflag.Flag) {
			flag := one.Flags().Lookup(given.Name)
			if flag == nil { // it is a global flag, which the factory knows
				return
			}

			value := given.Value.String()
			if slice, ok := given.Value.(pflag.SliceValue); ok {
				value = strings.Join(slice.GetSlice(), ",")
			}
			cmdutil.CheckErr(one.Flags().Set(given.Name, value))
		})

		if output := one.Flags().Lookup("output").Value.String(); output == "" || output == "wide" {
			cmdutil.CheckErr(one.Flags().Set("show-kind", "true"))
		}

		wait.Go(func() { one.Run(one, []string{resource}) })
	}
	wait.Wait()
}

// lines is a writer that shares its target with others, and passes on whole lines only.
type lines struct {
	to   io.Writer
	lock *sync.Mutex
	rest []byte
}

// Write passes on whole lines, and keeps the beginning of an incomplete line until the rest follows.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}

	l.lock.Lock()
	defer l.lock.Unlock()
	_, err := l.to.Write(l.rest[:end])
	l.rest = l.rest[end:]
	return len(p), err
}
