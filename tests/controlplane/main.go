// Command controlplane is a whole Kubernetes cluster in one executable, for tests on machines without containers.
//
// The first argument names the program to become; everything after it is passed on unchanged, so that callers can
// use this file and separately downloaded etcd and Kubernetes executables with the same flags.
// hollow-node is the kubelet itself on top of a container runtime that only pretends: admission, status updates,
// eviction and the pod life cycle are those of a real node.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubemark "k8s.io/kubernetes/cmd/kubemark/app"
)

// component wraps one of Kubernetes' own commands; making the command is delayed until it is the chosen one,
// because the constructors register flags and metrics that collide with each other.
func component(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints the error the way kubectl does and exits
	}
	return 0
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func main() {
	programs := map[string]func() int{
		"etcd":                    runEtcd,
		"kubectl":                 runKubectl,
		"kube-apiserver":          component(apiserver.NewAPIServerCommand),
		"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"hollow-node":             component(kubemark.NewHollowNodeCommand),
	}
	if len(os.Args) > 1 {
		if run, known := programs[os.Args[1]]; known {
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: controlplane %s [flags of that program]\n", strings.Join(names, "|"))
	os.Exit(2)
}
